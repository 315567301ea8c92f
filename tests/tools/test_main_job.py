"""The main job as a user does it: every command, from a recording to an assessed policy."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tools.cli import build_app

_PLAN = ("--horizon", "4", "--image-tokens", "1", "--budget-tokens", "256", "--slots", "2")


def _headrace(*arguments: str) -> Any:
    done = CliRunner().invoke(build_app(), [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_from_a_recording_to_an_assessed_policy(tmp_path: Path) -> None:
    lake, run = str(tmp_path / "robots.lake"), str(tmp_path / "run")
    recorded = _headrace(
        "simulate", "--out", str(tmp_path / "rec"), "--episodes", "3", "--no-cameras"
    )
    ingested = _headrace("ingest", str(tmp_path / "rec"), lake)
    assert ingested["sources"][0]["written"] == 3
    assert ingested["sources"][0]["steps"] == recorded["steps"]
    [row] = _headrace("sql", lake, "SELECT count(*) AS n, sum(num_steps) AS steps FROM episodes")
    assert row == {"n": 3, "steps": recorded["steps"]}
    plan = _headrace("pack", lake, "success", "--name", "p", *_PLAN)
    assert plan["num_spans"] == recorded["steps"]
    loaded = _headrace("load", lake, "p")
    assert loaded["next_step"] == plan["num_steps"]
    assert loaded["metrics"]["spans"] == plan["num_spans"]
    trained = _headrace("train", lake, "p", "--out", run, "--steps", "2")
    assert trained["finished"]
    assessed = _headrace("assess", run, "--episodes", "1", "--no-control", "--lake", lake)
    assert assessed["run_id"] == trained["run_id"]
    [lineage] = _headrace("sql", lake, "SELECT * FROM lineage")
    assert lineage["run_id"] == trained["run_id"]
    assert _headrace("doctor", lake) is not None
