import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lake import Lake
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.window_spans import WindowSpans
from tests.training.batches import make_spans, pack, policy_spec
from tests.training.plans import train_config
from training.errors import CheckpointError, ConfigError
from training.loop import train
from training.models.film.config import FilmConfig
from training.models.film.model import FilmPolicy
from training.policy import Policy, load_model
from training.precision.action_error import action_errors, windows_of
from training.precision.quantise import (
    FP8_WEIGHTS,
    in_fp8,
    out_of_fp8,
    quantise_checkpoint,
    read_weights,
)

WIDE = FilmConfig(
    width=128, expert_width=128, layers=2, heads=2, head_dim=64, conv_channels=(8, 8), flow_steps=2
)


@pytest.fixture(scope="module")
def trained(
    planned: tuple[Lake, Plan], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A checkpoint of a policy wide enough, and the same in FP8."""
    lake, plan = planned
    out = tmp_path_factory.mktemp("wide")
    config = replace(train_config(steps=2), model=WIDE)
    checkpoint = train(lake, plan, out / "run", config).checkpoint
    quantise_checkpoint(checkpoint, out / "fp8")
    return checkpoint, out / "fp8"


def weights(**sizes: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(size, generator=generator) for name, size in sizes.items()}


def test_large_matrices_are_rounded_and_all_else_is_kept() -> None:
    before = weights(
        matrix=(300, 200), square=(128, 128), kernel=(128, 64, 2, 2), bias=(4096,),
        thin=(4096, 127), heads=(2, 128, 128), counts=(3,),
    )  # fmt: skip
    before["counts"] = before["counts"].long()
    stored = in_fp8(before)
    fp8 = {name for name, tensor in stored.items() if tensor.dtype == torch.float8_e4m3fn}
    assert fp8 == {"matrix", "square", "kernel"}
    assert stored["matrix.fp8_scale"].shape == (3, 2)
    assert stored["kernel.fp8_scale"].shape == (1, 2)
    after = out_of_fp8(stored)
    assert list(after) == list(before)
    for name, weight in before.items():
        if name in fp8:
            error = (after[name] - weight).abs()
            assert 0 < float(error.max()) <= float(weight.abs().max()) / 28 * (1 + 1e-5)
            assert float(error.norm() / weight.norm()) < 0.03
            assert after[name].dtype == torch.float32
        else:
            assert torch.equal(after[name], weight)


def test_what_is_in_fp8_already_is_kept_exactly() -> None:
    once = out_of_fp8(in_fp8(weights(matrix=(300, 200))))
    assert torch.equal(out_of_fp8(in_fp8(once))["matrix"], once["matrix"])


def test_a_quantised_policy_takes_a_quarter_and_acts_nearly_the_same(
    planned: tuple[Lake, Plan], trained: tuple[Path, Path], tmp_path: Path
) -> None:
    lake, plan = planned
    checkpoint, folder = trained
    done = quantise_checkpoint(checkpoint, tmp_path / "again")
    assert done.fp8_bytes == (folder / FP8_WEIGHTS).stat().st_size
    assert done.fp8_bytes / done.plain_bytes < 0.3
    assert "trunk.0.qkv.weight" in done.errors
    for error in done.errors.values():
        assert 0.01 < error.relative < 0.03
        assert error.largest <= 1 / 28 + 1e-6
    plain, rounded = load_model(checkpoint), load_model(folder)
    batches = windows_of(lake, plan, plain.spec, 20)
    errors = action_errors(plain, rounded, batches)
    assert errors.windows >= 20
    assert 0 < errors.mean_relative < 0.02
    assert errors.mean_relative < errors.max_relative < 0.1
    assert errors.other_recorded_relative == pytest.approx(errors.recorded_relative, rel=0.05)
    assert len(errors.mean_abs) == 3
    assert Policy.load(folder).spec == plain.spec
    assert json.loads((folder / "quantisation.json").read_text())["block"] == [128, 128]


def test_action_errors_are_those_of_plain_loops() -> None:
    spec = policy_spec()
    torch.manual_seed(0)
    model = FilmPolicy(WIDE, spec)
    other = FilmPolicy(WIDE, spec)
    batches = [pack(make_spans(3, seed=1)), pack(make_spans(4, seed=2), pad=9)]
    errors = action_errors(model, other, batches)
    relative, by_dimension = [], [[], [], [], []]  # type: ignore[var-annotated]
    for batch in batches:
        one, two = model.sample(batch), other.sample(batch)
        for row in range(batch.num_spans):
            first, stop = batch.cu_seqlens_action[row : row + 2].tolist()
            std = spec.action[int(batch.stats_ids[row])].std
            for query in range(first, stop):
                if batch.action_loss_weights[query] > 0:
                    for dim, scale in enumerate(std):
                        difference = abs(float(two[query, dim] - one[query, dim]))
                        by_dimension[dim].append(difference)
                        relative.append(difference / scale)
    assert errors.windows == 7
    assert errors.mean_relative == pytest.approx(sum(relative) / len(relative), rel=1e-4)
    assert errors.max_relative == pytest.approx(max(relative), rel=1e-4)
    assert errors.mean_abs == pytest.approx([sum(d) / len(d) for d in by_dimension], rel=1e-4)
    assert errors.max_abs == pytest.approx([max(d) for d in by_dimension], rel=1e-4)
    same = action_errors(model, model, batches)
    assert (same.max_relative, same.max_abs) == (0, (0, 0, 0, 0))
    with pytest.raises(ConfigError, match="no recorded action"):
        action_errors(model, other, [])


def test_a_plan_of_other_windows_is_refused(
    planned: tuple[Lake, Plan], trained: tuple[Path, Path]
) -> None:
    lake, _ = planned
    other = make_plan(
        lake, spans=WindowSpans(horizon=5, history=2), layout=TokenLayout(image_tokens=4),
        budget_tokens=384, slots_per_step=1,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="has history 2, the policy was trained with 1"):
        windows_of(lake, other, load_model(trained[0]).spec, 5)


@pytest.mark.parametrize("name", [FP8_WEIGHTS, "policy.json"])
def test_a_damaged_file_is_refused(trained: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    folder = tmp_path / "fp8"
    folder.mkdir()
    for file in trained[1].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} in .* is not what was written"):
        load_model(folder)


def test_scales_that_are_missing_or_of_another_size_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    stored = in_fp8(weights(matrix=(300, 200)))
    scale = stored.pop("matrix.fp8_scale")
    save_file(stored, tmp_path / "missing")
    save_file({**stored, "matrix.fp8_scale": scale[:1].contiguous()}, tmp_path / "short")
    for name in ("missing", "short"):
        with pytest.raises(CheckpointError, match="scales and matrices do not fit"):
            read_weights(tmp_path / name)


def test_what_cannot_be_quantised_is_refused_and_leaves_nothing(
    planned: tuple[Lake, Plan], trained: tuple[Path, Path], tmp_path: Path
) -> None:
    checkpoint, folder = trained
    with pytest.raises(CheckpointError, match="is there already"):
        quantise_checkpoint(checkpoint, folder)
    with pytest.raises(CheckpointError, match="is in FP8 already"):
        quantise_checkpoint(folder, tmp_path / "twice")
    small = train(*planned, tmp_path / "run", train_config(steps=1)).checkpoint
    with pytest.raises(CheckpointError, match="no matrix of 128 rows"):
        quantise_checkpoint(small, tmp_path / "small")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        quantise_checkpoint(checkpoint, tmp_path / "file" / "below")
    assert not list(tmp_path.glob("*small*")) + list(tmp_path.glob(".partial*"))


def test_weights_are_finite_and_tied_to_one_checkpoint(trained: tuple[Path, Path]) -> None:
    checkpoint, folder = trained
    about = json.loads((folder / "quantisation.json").read_text())
    assert about["checkpoint"] == checkpoint.name
    stored = load_file(folder / FP8_WEIGHTS)
    assert sorted(about["matrices"]) == sorted(
        name for name, tensor in stored.items() if tensor.dtype == torch.float8_e4m3fn
    )
