"""The training bench: contenders compute the same, workloads are what they say, figures add up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loader.batch import Modality
from tools.bench import training
from tools.bench.framework import BenchResult
from tools.bench.training import Setup, measure_training
from tools.bench.training_case import Case, GradientsDifferError, measure_case
from tools.bench.training_curves import LossCurves, train_alike
from tools.bench.training_libero import OPENPI, as_openpi, load_libero
from tools.bench.training_oxe import load_oxe
from tools.bench.training_packs import (
    BUCKETED,
    LONGEST,
    MAXIMUM,
    PACKED,
    Packs,
    Words,
    padded_ways,
)
from tools.bench.training_sizes import PUBLISHED, REDUCED, without_weights, work_of
from tools.bench.training_trajectories import load_trajectories
from tools.cli import build_app
from training.attention.varlen import BACKENDS
from training.loss import flow_matching_loss
from training.models.film.config import FilmConfig
from training.models.kinds import build_model
from training.models.pi05.config import Pi05Config
from training.padded import PaddedPack, padded_tokens

CPU = torch.device("cpu")
SMALLEST = FilmConfig(width=16, expert_width=16, layers=2, heads=2, head_dim=8)
PI05 = Pi05Config(
    width=16, mlp_width=32, expert_width=16, expert_mlp_width=32, layers=2, heads=2, head_dim=8,
    vision_width=16, vision_depth=1, vision_heads=2, vision_mlp_width=32, action_mask="full",
)  # fmt: skip
TINY = Setup(
    trajectories=6, mean_steps=12, longest_steps=40, trajectory_budget=512, trajectory_batch=3,
    windows=3, window_budget=2048, window_batch=2, curve_steps=3, repetitions=1,
    trajectory_model=SMALLEST, window_model=PI05,
)  # fmt: skip
RATIOS = {
    "packed_over_padded_trajectories", "packed_over_bucketed_trajectories",
    "padding_factor_trajectories", "packed_over_padded_oxe", "padding_factor_oxe",
    "control_equal_lengths", "pi05_libero_tokens_removed_speedup", "fp8_loss_gap",
}  # fmt: skip


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    folder = tmp_path_factory.mktemp("lakes") / "a.lake"
    return load_trajectories(folder, [8, 30, 12, 9, 25, 10, 11], budget_tokens=256)


@pytest.fixture(scope="module")
def libero(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    folder = tmp_path_factory.mktemp("lakes") / "b.lake"
    return load_libero(folder, windows=10, budget_tokens=2048)


def small_case(packs: Packs, **contenders: Any) -> Case:
    torch.manual_seed(0)
    model = build_model(SMALLEST, packs.spec)
    return Case(
        name="x",
        model=model,
        contenders={PACKED: packs.packed, **contenders},
        tokens=packs.tokens,
    )


def test_every_contender_holds_every_span_once(trajectories: Packs) -> None:
    ways = {PACKED: trajectories.packed, **padded_ways(trajectories, 2)}
    for name, batches in ways.items():
        held = torch.cat([batch.span_ids[: batch.num_spans] for batch in batches])
        assert sorted(held.tolist()) == list(range(7)), name
        assert all(isinstance(batch, PaddedPack) for batch in batches) == (name != PACKED)
    tokens = {name: sum(map(padded_tokens, batches)) for name, batches in ways.items()}
    assert trajectories.tokens == tokens[PACKED]
    assert tokens[PACKED] < tokens[BUCKETED] < tokens[LONGEST] < tokens[MAXIMUM]
    assert len({padded_tokens(batch) for batch in ways[MAXIMUM][:3]}) == 1


def test_contenders_compute_the_same_gradients(trajectories: Packs) -> None:
    case = small_case(trajectories, **padded_ways(trajectories, 3))
    measured = measure_case(case, repetitions=1, device=CPU)
    assert [row["contender"] for row in measured.rows] == [PACKED, LONGEST, MAXIMUM, BUCKETED]
    for row in measured.rows:
        assert float(row["gradients differ by"]) < 1e-5
        assert row["padding factor"] == round(case.padding_factor(row["contender"]), 3)
    assert measured.packed_over(PACKED) == 1.0
    assert measured.packed_over(LONGEST) == measured.seconds[LONGEST] / measured.seconds[PACKED]


def test_a_contender_that_computes_something_else_is_not_timed(trajectories: Packs) -> None:
    other = [replace(batch, actions=batch.actions + 1) for batch in trajectories.packed]
    with pytest.raises(GradientsDifferError, match="x: the gradients of 'other' differ"):
        measure_case(small_case(trajectories, other=other), repetitions=1, device=CPU)


def test_libero_windows_are_as_long_as_in_openpi(libero: Packs) -> None:
    whole = libero.whole
    assert whole.num_spans == 10
    text = torch.bincount(whole.segment_ids[whole.token_modality == Modality.TEXT])
    assert sorted(text.tolist()) == sorted(
        2 + words for words in (6, 6, 7, 8, 10, 11, 16, 15, 17, 19)
    )
    assert whole.cu_seqlens.diff()[:10].tolist() == (512 + text).tolist()
    assert whole.cu_seqlens_action.diff()[:10].tolist() == [10] * 10
    assert not len(whole.state_token_index)
    assert {tuple(bucket.shape[1:]) for bucket in whole.images} == {(3, 224, 224)}
    padded = as_openpi(libero, 4)
    assert [padded_tokens(batch) for batch in padded] == [n * (768 + 200 + 10) for n in (4, 4, 2)]
    assert [len(batch.images[0]) for batch in padded] == [12, 12, 6]


def test_reduced_sizes_have_the_shares_of_the_published_ones(libero: Packs) -> None:
    padded = as_openpi(libero, 5)
    (packed, full), (packed_small, full_small) = (
        [work_of(model, batches) for batches in (libero.packed, padded)]
        for model in (without_weights(config, libero.spec) for config in (PUBLISHED, REDUCED))
    )
    assert 1.65 < full.total / packed.total < 1.85
    assert full_small.total / packed_small.total == pytest.approx(
        full.total / packed.total, abs=0.02
    )
    for small, published in ((packed_small, packed), (full_small, full)):
        assert small.attention / small.total == pytest.approx(
            published.attention / published.total, abs=0.003
        )
        assert small.vision / small.total == pytest.approx(
            published.vision / published.total, abs=0.03
        )


def test_robots_differ_in_cameras_texts_and_chunks(tmp_path: Path) -> None:
    packs = load_oxe(tmp_path / "c.lake", windows=12, budget_tokens=2048)
    whole = packs.whole
    pictures = torch.bincount(whole.image_span_ids.long())
    assert set(pictures.tolist()) == {1, 2, 3}
    text = torch.bincount(whole.segment_ids[whole.token_modality == Modality.TEXT])
    assert text.max() > text.min()
    assert set(whole.cu_seqlens_action.diff()[: whole.num_spans].tolist()) == {3, 5, 10, 15, 50}
    dims = torch.stack([mask.sum() for mask in whole.state_dim_mask]).tolist()
    assert min(dims) == 2
    assert max(dims) == 14
    ways = padded_ways(packs, 4, pictures=3)
    assert all(len(b.images[0]) == 3 * b.num_spans for b in ways[MAXIMUM])
    assert sum(len(b.images[0]) for b in ways[BUCKETED]) < sum(
        len(b.images[0]) for b in ways[MAXIMUM]
    )


def test_a_word_is_a_token() -> None:
    words = Words()
    assert len(words.encode("put the cup, down")) == 4
    assert words.encode("cup\n")[0] == words.encode("the cup")[1]
    assert len(words.encode("cup\n")) == 2
    assert all(8 <= i < words.vocab_size for i in words.encode("a b c d e f g"))


def test_packed_and_padded_training_overlay_and_learn(trajectories: Packs) -> None:
    torch.manual_seed(0)
    model = build_model(SMALLEST, trajectories.spec)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    packs = replace(trajectories, packed=trajectories.packed[:1])
    curves = train_alike(model, packs, steps=16, batch_size=2, device=CPU)
    assert len(curves.packed) == len(curves.padded) == len(curves.fp8) == 16
    assert curves.largest_gap < 1e-4
    last = replace(packs.packed[0], epoch=15)
    untrained = float(flow_matching_loss(model(last), last).detach()) / last.num_action_items
    assert curves.packed[-1] < 0.995 * untrained
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert 1e-6 < curves.fp8_gap < 0.02


def test_gaps_are_relative_to_the_packed_loss() -> None:
    losses = [4.0, 3.0, 3.0, 3.0, 2.0]
    curves = LossCurves(packed=losses, padded=[4.4, *losses[1:]], fp8=[9.0, 9.0, 9.0, 3.0, 2.1])
    assert curves.largest_gap == pytest.approx(0.1)
    assert curves.fp8_gap == pytest.approx(0.1 / 5)


def test_bench_names_its_ratios_and_draws_the_curves(tmp_path: Path) -> None:
    result = measure_training(TINY, tmp_path / "curves.png")
    assert set(result.ratios) == RATIOS  # on a CPU
    assert all(ratio > 0 for ratio in result.ratios.values())
    factors = {(r["workload"], r["contender"]): r["padding factor"] for r in result.rows}
    assert factors["equal lengths (control)", LONGEST] == 1.0
    assert factors["LIBERO-like windows", OPENPI] > 1.7
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert len(result.tables["loss of the same training"]) == 3
    backends = result.tables["attention backends, LIBERO-like windows packed"]
    assert {row["backend"] for row in backends} == set(BACKENDS)
    assert [row["backend"] for row in backends if not row["refused"]] == ["sdpa"]


def test_options_reach_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def stand_in(quick: bool, picture: Path | None) -> BenchResult:  # noqa: FBT001
        seen.extend((quick, picture))
        return BenchResult(name="training", rows=[], ratios={})

    monkeypatch.setattr(training, "run", stand_in)
    picture = tmp_path / "a.svg"
    command = ["bench", "training", "--quick", "--picture", str(picture), "--json", "-"]
    done = CliRunner().invoke(build_app(), command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["name"] == "training"
    assert seen == [True, picture]
