"""The cost bench: its fit finds the weights behind timings, and it runs where there is no GPU."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from packing.cost import CostModel, MeasuredCost
from tools.bench.cost import QUICK, CostBenchError, CostSetup, measure_cost, write_measured
from tools.bench.cost_fit import CostFit, fit_cost
from tools.bench.cost_stack import TimedPack, TimedStack, even_packs, image_packs, mixed_packs
from tools.cli import build_app

TINY = CostSetup(
    d_model=16, heads=2, layers=1, max_tokens=256, image_size=32, device="cpu", repetitions=1
)
PACKS = {**even_packs(4096), **image_packs(4096)}

weights = st.builds(
    CostFit,
    per_token=st.floats(1e-8, 1e-6),
    per_square=st.one_of(st.just(0.0), st.floats(1e-11, 1e-9)),
    per_image=st.one_of(st.just(0.0), st.floats(1e-4, 1e-2)),
    per_span=st.one_of(st.just(0.0), st.floats(1e-6, 1e-4)),
    per_pack=st.one_of(st.just(0.0), st.floats(1e-5, 1e-3)),
)


def timed(fit: CostFit, pack: TimedPack, factor: float = 1.0) -> float:
    return fit.seconds(pack.sample(0.0)) * factor


@given(weights)
def test_fit_finds_the_weights_behind_timings(truth: CostFit) -> None:
    fit = fit_cost([pack.sample(timed(truth, pack)) for pack in PACKS.values()])
    for name in CostFit.__dataclass_fields__:
        largest = max(
            getattr(truth, name) * amount / timed(truth, pack)
            for pack in PACKS.values()
            for amount in [_amount(name, pack)]
        )
        # A weight is known as well as it shows: to a millionth of the largest share it has.
        tolerance = 1e-6 * max(getattr(truth, name), 1e-3 * truth.per_token * 4096)
        if largest > 1e-6:
            assert getattr(fit, name) == pytest.approx(getattr(truth, name), abs=tolerance)
    for pack in mixed_packs(4096).values():
        assert abs(fit.error(pack.sample(timed(truth, pack)))) < 1e-6


def _amount(name: str, pack: TimedPack) -> float:
    sample = pack.sample(1.0)
    amounts = (sample.tokens, sample.sum_sq, sample.images, sample.spans, 1)
    return dict(zip(CostFit.__dataclass_fields__, amounts, strict=True))[name]


@given(weights, st.integers(0, 99))
def test_noise_moves_predictions_by_no_more_than_itself_and_no_weight_below_zero(
    truth: CostFit, seed: int
) -> None:
    noise = np.random.default_rng(seed).uniform(0.97, 1.03, len(PACKS))
    samples = [
        pack.sample(timed(truth, pack, factor))
        for pack, factor in zip(PACKS.values(), noise, strict=True)
    ]
    fit = fit_cost(samples)
    assert min(getattr(fit, name) for name in CostFit.__dataclass_fields__) >= 0
    assert fit.root_mean_square_error(samples) <= 0.031  # the truth itself is off by 3 % at most
    assert truth.root_mean_square_error(samples) >= fit.root_mean_square_error(samples) - 1e-12


def test_what_does_not_occur_has_no_weight() -> None:
    fit = fit_cost([pack.sample(1e-6 * sum(pack.lengths)) for pack in even_packs(1024).values()])
    assert fit.per_image == 0
    assert fit.per_token == pytest.approx(1e-6)


@pytest.mark.parametrize("most", [256, 1000, 8192])
def test_packs_hold_the_tokens_that_their_names_say(most: int) -> None:
    for name, pack in {**even_packs(most), **image_packs(most), **mixed_packs(most)}.items():
        assert name.startswith(f"{sum(pack.lengths)} tokens")
        assert sum(pack.lengths) in {most, most // 2, most // 4}
        assert min(pack.lengths) > 0
    samples = [pack.sample(1.0) for pack in even_packs(most).values()]
    table = np.array([[s.tokens, s.sum_sq, s.spans, 1] for s in samples], float)
    assert np.linalg.matrix_rank(table / table.max(axis=0)) == 4, "every weight can be told"


def _ideal(per_token: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps run, but the clock is replaced: other processes must not decide what a test says."""
    stepped = []

    def time_ideally(
        packs: Mapping[str, TimedPack], stack: TimedStack, *_: object
    ) -> dict[str, list[float]]:
        for name, pack in packs.items():
            stack.step(pack)()
            stepped.append(name)
        return {name: [1e-3 + per_token * sum(p.lengths)] for name, p in packs.items()}

    monkeypatch.setattr("tools.bench.cost._time", time_ideally)
    return stepped


def test_timings_that_do_not_grow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _ideal(0.0, monkeypatch)
    with pytest.raises(CostBenchError, match="do not grow with tokens: the device is too busy"):
        measure_cost(TINY)


def test_bench_runs_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = _ideal(1e-6, monkeypatch)
    result, measured = measure_cost(TINY)
    assert len(stepped) == len(result.rows)
    assert {row["used_to"] for row in result.rows} == {"fit", "check"}
    assert sum("images" in row["pack"] for row in result.rows) == 2
    assert measured.cost.per_token + measured.cost.per_square > 0
    assert measured.measured["dtype"] == "float32"
    assert measured.measured["attention"] == "sdpa"
    assert measured.measured["d_model"] == 16
    assert result.ratios["fit_error"] == measured.relative_error


@pytest.mark.parametrize(("fit", "check"), [(0.11, 0.01), (0.01, 0.2)])
def test_bad_fit_is_not_written(fit: float, check: float, tmp_path: Path) -> None:
    cost = MeasuredCost(
        cost=CostModel.of_width(8), unit_s=1.0, relative_error=fit, check_error=check
    )
    with pytest.raises(CostBenchError, match=r"not written: the fit is off by .*more than 10%"):
        write_measured(cost, tmp_path / "cost.json")
    assert not list(tmp_path.iterdir())
    write_measured(replace(cost, relative_error=0.1, check_error=0.1), tmp_path / "cost.json")
    assert MeasuredCost.read(tmp_path / "cost.json").cost == CostModel.of_width(8)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"heads": 3}, "even number of features for each of 3 heads"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"max_tokens": 128}, "max_tokens must be at least 256"),
        ({"image_size": -1}, "image_size"),
    ],
)
def test_bad_setup_is_refused_by_name(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(CostBenchError, match=match):
        CostSetup(**{"d_model": 16, "heads": 2, **changes})


def test_device_that_is_not_there() -> None:
    with pytest.raises(CostBenchError, match="device 'nonsense' cannot be used"):
        measure_cost(replace(QUICK, device="nonsense"))


def test_options_reach_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[CostSetup] = []
    measured = MeasuredCost(
        cost=CostModel.of_width(8), unit_s=1.0, relative_error=0.0, check_error=0.0
    )
    result, _ = measure_cost(replace(TINY, image_size=0))

    def stand_in(setup: CostSetup) -> object:
        seen.append(setup)
        return result, measured

    monkeypatch.setattr("tools.bench.cost.measure_cost", stand_in)
    options = {
        "--d-model": 32, "--heads": 4, "--layers": 3, "--mlp-ratio": 2, "--max-tokens": 512,
        "--image-size": 24, "--device": "cpu", "--repetitions": 2, "--json": "-",
        "--out": tmp_path / "cost.json",
    }  # fmt: skip
    given_options = [str(part) for option in options.items() for part in option]
    done = CliRunner().invoke(build_app(), ["bench", "cost", "--quick", *given_options])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["name"] == "cost"
    assert seen == [
        CostSetup(
            d_model=32, heads=4, layers=3, mlp_ratio=2, max_tokens=512, image_size=24,
            device="cpu", repetitions=2,
        )
    ]  # fmt: skip
    assert MeasuredCost.read(tmp_path / "cost.json") == measured


def test_a_path_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path / "file" / "cost.json", "cannot be written"), (tmp_path, "folder")):
        result = CliRunner().invoke(
            build_app(), ["bench", "cost", "--out", str(path), "--device", "no_such_device"]
        )
        assert isinstance(result.exception, CostBenchError)
        assert str(path) in str(result.exception)
        assert why in str(result.exception)
