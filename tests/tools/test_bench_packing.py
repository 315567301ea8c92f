"""The packing bench measures what it names, and names what aims ask for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from packing.arrange import arrange
from packing.draw import draw_order
from packing.packs import Load, Packing
from packing.settings import PlanSettings
from tools.bench import packing
from tools.bench.framework import BenchResult
from tools.bench.packing_case import CONTENDERS, OURS, Case, measure_case, pack, run_case
from tools.bench.packing_data import Trajectories, trajectories, windows
from tools.cli import build_app


def _packed(contender: str, n: int, open_runs: int) -> tuple[Packing, Trajectories]:
    case = Case(contender=contender, n=n)
    data = trajectories(n, budget=case.budget, tokens_per_step=case.tokens_per_step)
    load = Load(name="tokens", per_span=data.tokens, limit=case.budget)
    order = draw_order(np.arange(n), open_runs, 0, 0)
    return pack(case, order, data, load), data


def _contents(packing: Packing) -> list[tuple[int, ...]]:
    bounds = zip(packing.offsets[:-1].tolist(), packing.offsets[1:].tolist(), strict=True)
    return sorted(tuple(sorted(packing.items[a:b].tolist())) for a, b in bounds if a < b)


@pytest.mark.parametrize("contender", CONTENDERS)
def test_every_span_once_and_no_pack_over_budget(contender: str) -> None:
    packed, data = _packed(contender, 3000, 256)
    assert sorted(packed.items.tolist()) == list(range(3000))
    assert (packed.sum(data.tokens) <= 8192).all()


@pytest.mark.parametrize(
    ("contender", "packer"), [("shuffle-fill", "shuffle-fill"), ("bfd (histogram)", "bfd")]
)
def test_ours_are_packed_as_a_plan_packs_them(contender: str, packer: Any) -> None:
    packed, data = _packed(contender, 2000, 256)
    settings = PlanSettings(budget_tokens=8192, slots_per_step=1, open_runs=256, packer=packer)
    assert _contents(arrange(data.spans(), np.arange(2000), settings).packing) == _contents(packed)


@pytest.mark.parametrize("contender", CONTENDERS)
def test_figures_of_a_case_agree_with_one_another(contender: str) -> None:
    figures = measure_case(Case(contender=contender, n=4000))
    assert 0 < figures.bound <= figures.packs
    data = trajectories(4000, budget=8192, tokens_per_step=4)
    assert figures.padding == pytest.approx(1 - data.tokens.sum() / (figures.packs * 8192))
    assert figures.bias > 0
    assert set(figures.max_over_mean) == {8, 64, 512}
    assert all(ratio >= 1 for ratio in figures.max_over_mean.values())
    balances = contender in OURS
    assert all((steps > 0) == balances for steps in figures.window_steps.values())
    assert ("balance" in figures.seconds) == balances
    assert figures.total_s == sum(figures.seconds.values())


def test_a_process_of_its_own_finds_the_same() -> None:
    case = Case(contender="next-fit", n=4000, budget=16384, tokens_per_step=16)
    here, there = measure_case(case), run_case(case)
    for name in ("packs", "bound", "padding", "bias", "max_over_mean", "window_steps", "lost"):
        assert getattr(here, name) == getattr(there, name)
    assert there.peak_rss_gb > 0


def test_the_result_has_a_row_per_case_and_the_ratios_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "run_case", measure_case)
    cases = [Case(contender=name, n=4000) for name in ("shuffle-fill", "next-fit", "shuffle-fill")]
    result = packing.compare(cases, windows(60), slots=(1,), open_runs=(64,), compared=4000)
    assert [row["contender"] for row in result.rows] == ["shuffle-fill", "next-fit"]
    assert set(result.ratios) == {
        *("padding", "packs_over_l2", "bias_over_random", "bias_over_next_fit"),
        *("max_over_mean_8", "max_over_mean_64", "max_over_mean_512"),
        *("q1", "q16", "seconds_1e6", "peak_rss_gb"),
    }
    assert result.ratios["packs_over_l2"] >= 1
    assert [row["open runs"] for row in result.tables["windows"]] == [
        *(64, 256),
        len(windows(60).spans),
    ]


def test_cases_cover_what_is_promised() -> None:
    quick, full = packing.quick_cases(), packing.full_cases()
    assert {case.contender for case in quick} == set(CONTENDERS)
    ours = {(c.n, c.budget, c.tokens_per_step) for c in full if c.contender == "shuffle-fill"}
    assert ours >= {
        (n, budget, k)
        for n in (100_000, 1_000_000, 10_000_000)
        for budget in (8192, 16384, 32768)
        for k in (1, 4, 16)
    }
    assert (100_000_000, 8192, 4) in ours
    assert {c.contender for c in full if c.n == 1_000_000} == {*CONTENDERS} - {"knapsack, global"}


def test_the_command_writes_json_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "run_case", measure_case)
    cases = [Case(contender=name, n=4000) for name in ("shuffle-fill", "next-fit")]
    asked: list[bool] = []

    def small(quick: bool) -> BenchResult:  # noqa: FBT001  # as every bench
        asked.append(quick)
        return packing.compare(cases, windows(40), slots=(1,), open_runs=(64,), compared=4000)

    monkeypatch.setattr(packing, "run", small)
    json_to, picture = tmp_path / "out.json", tmp_path / "out.png"
    arguments = ["bench", "packing", "--quick", "--json", str(json_to), "--picture", str(picture)]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    assert asked == [True]
    document = json.loads(json_to.read_text())
    assert document["name"] == "packing"
    assert document["quick"] is True
    assert set(document["tables"]) == {"windows"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    from packing.errors import PackingError

    rows = [
        {"order": "runs", "slots": 1, "open runs": 64, "chosen": "yes", "Q1": 1.0}
        | {"near-duplicates": 0.1, "decoded/wanted, 1": 1.2, "GB kept, 1": 0.5}
    ]
    result = BenchResult(name="packing", rows=[], ratios={}, tables={"windows": rows})
    with pytest.raises(PackingError, match="cannot write the picture"):
        packing.picture(result, tmp_path / "absent" / "out.png")
