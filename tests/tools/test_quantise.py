import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.training.plans import make_lake, plan_windows, train_config
from tests.training.simulation import test_trial
from tools import cli
from training.loop import train
from training.models.film.config import FilmConfig
from training.policy import load_model

WIDE = FilmConfig(
    width=128, expert_width=128, layers=2, heads=2, head_dim=64, conv_channels=(8, 8), flow_steps=2
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Plan, Path]:
    lake = make_lake(tmp_path_factory.mktemp("quantise") / "robots.lake")
    plan = plan_windows(lake)
    save_plan(lake, plan, "windows")
    out = tmp_path_factory.mktemp("run")
    train(lake, plan, out, replace(train_config(steps=2), model=WIDE))
    return lake, plan, out


def headrace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["headrace", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_run_is_quantised_and_compared(
    run: tuple[Lake, Plan, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake, _, out = run
    code, said, _ = headrace(
        monkeypatch, capsys, "quantise", str(out), "--lake", lake.uri, "--plan", "windows",
        "--windows", "10", "--json",
    )  # fmt: skip
    assert code == 0
    found: dict[str, Any] = json.loads(said)
    assert Path(found["out"]) == out.resolve() / "step-00000002-fp8"
    load_model(Path(found["out"]))
    assert found["fp8_bytes"] < 0.3 * found["plain_bytes"]
    assert 0 < found["weights"]["trunk.0.qkv.weight"]["relative"] < 0.03
    assert found["actions"]["trained_on"]
    assert found["actions"]["windows"] >= 10
    assert 0 < found["actions"]["mean_relative"] < 0.02
    assert found["act_ms"]["plain"] > 0
    assert found["success"] is None


def test_the_report_in_words_has_every_figure(
    run: tuple[Lake, Plan, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake, _, out = run
    code, said, _ = headrace(
        monkeypatch, capsys, "quantise", str(out), "--out", str(tmp_path / "fp8"),
        "--lake", lake.uri, "--plan", "windows",
    )  # fmt: skip
    assert code == 0
    for word in ("trunk.0.qkv.weight", "bytes, now", "ms a chunk", "of their standard deviation"):
        assert word in said
    assert "that the policy was trained on" in said


def test_a_policy_of_the_simulation_is_rolled_out_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco", reason="the sim extra is not installed")
    monkeypatch.setattr(test_trial, "SMALL", replace(test_trial.SMALL, model=WIDE))
    checkpoint = test_trial.make_checkpoint(tmp_path / "run")
    arguments = ("quantise", str(checkpoint), "--episodes", "1", "--seed", "3")
    code, said, _ = headrace(monkeypatch, capsys, *arguments, "--out", str(tmp_path / "fp8"))
    assert code == 0
    rate = r"[01] of 1 \(95 % interval \d+% to \d+%\)"
    assert re.search(f"success   {rate}, now {rate}", said)


def test_a_plan_without_its_lake_is_refused(
    run: tuple[Lake, Plan, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, said = headrace(
        monkeypatch, capsys, "quantise", str(run[2]), "--out", str(tmp_path / "x"), "--plan", "p"
    )
    assert code != 0
    assert "--lake and --plan go together" in said
    assert not (tmp_path / "x").exists()
