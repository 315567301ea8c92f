"""What every bench relies on: interleaving, spread, provenance, JSON."""

import json
from pathlib import Path

import pytest

from tools.bench.framework import BenchResult, interleave, measure, report, spread


def test_contenders_take_turns_after_one_untimed_round() -> None:
    calls: list[str] = []
    timings = interleave(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repetitions=3
    )
    assert calls == ["a", "b"] * 4
    assert [len(runs) for runs in timings.values()] == [3, 3]


def test_cpu_time_counts_this_process() -> None:
    timing = measure(lambda: sum(i * i for i in range(200_000)))
    assert timing.cpu_s > 0
    assert timing.wall_s > 0


def test_spread_is_median_least_and_most() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2 [1, 3]"
    assert spread([43_349.0, 0.012_345, 216_540.0]) == "43,300 [0.0123, 217,000]"


def test_json_names_commit_versions_machine_and_says_quick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = BenchResult(
        name="example", rows=[{"contender": "a", "ms": 1.5}], ratios={"a_over_b": 2.0}, notes=["n"]
    )
    report(result, quick=True, json_to=str(tmp_path / "deep" / "out.json"))
    document = json.loads((tmp_path / "deep" / "out.json").read_text())
    assert document["rows"] == [{"contender": "a", "ms": 1.5}]
    assert document["ratios"] == {"a_over_b": 2.0}
    assert document["quick"] is True
    assert document["machine"]["cores"] >= 1
    assert document["versions"]["pylance"] != "absent"
    assert document["commit"]
    printed = capsys.readouterr()
    report(result, quick=False, json_to="-")
    on_stdout = capsys.readouterr()
    assert json.loads(on_stdout.out)["quick"] is False
    assert "headrace bench example" in printed.out
    assert "headrace bench example" in on_stdout.err


def test_a_ratio_that_is_no_number_is_refused(tmp_path: Path) -> None:
    result = BenchResult(name="example", rows=[], ratios={"broken": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        report(result, quick=True, json_to=str(tmp_path / "out.json"))
    assert not (tmp_path / "out.json").exists()


def test_rows_wider_than_the_terminal_stand_upright_with_every_figure_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, object] = {f"a rather long name {n}": f"{n},000 [1, 2]" for n in range(6)}
    result = BenchResult(name="example", rows=[row], ratios={})
    monkeypatch.setenv("COLUMNS", "80")
    report(result, quick=True, json_to=None)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name, value in row.items():
        assert sum(name in line and str(value) in line for line in lines) == 1
    monkeypatch.setenv("COLUMNS", "400")
    report(result, quick=True, json_to=None)
    assert any(all(name in line for name in row) for line in capsys.readouterr().out.splitlines())
