"""`headrace load`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lake import open_lake
from packing.plan_store import save_plan
from tests.loader import scenes
from tests.loader.damage import damaged_copy
from tools.cli import build_app


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = scenes.scene_lake(tmp_path_factory.mktemp("load"))
    save_plan(made, scenes.scene_plan(made), "mix")
    return made.uri


def _load(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(), ["load", *arguments])
    return result.exit_code, result.stdout


def test_json_counts_what_came(lake: str) -> None:
    code, out = _load(
        lake, "mix", "--steps", "3", "--first-step", "1", "--process", "inline", "--json"
    )
    report = json.loads(out)
    assert code == 0
    assert (report["first_step"], report["next_step"]) == (1, 4)
    assert report["metrics"]["packs"] == 9
    assert report["metrics"]["counts"]["wanted_frames"] > 0
    assert 0 < report["padding"] < 1
    assert report["batch_bytes"] > 0


def test_damaged_spans_are_listed_or_an_error(lake: str, tmp_path: Path) -> None:
    state = scenes.scene_episode(1).features["state"][2:4].tobytes()
    damaged = damaged_copy(open_lake(lake), tmp_path / "damaged.lake", [state])
    common = (damaged.uri, "mix", "--process", "inline", "--json")
    report = json.loads(_load(*common, "--max-bad-share", "1")[1])
    bad = report["bad_spans"]
    assert len(bad) == report["metrics"]["counts"]["bad_spans"] > 0
    assert {span["episode_id"] for span in bad} == {scenes.scene_episode(1).episode_id}
    assert bad[0]["reason"] == "state does not match its checksum"
    assert _load(*common)[0] != 0


def test_ranks_share_a_step(lake: str) -> None:
    packs = []
    for rank in ("0", "1"):
        common = ("--world-size", "2", "--steps", "2", "--process", "inline", "--json")
        _, out = _load(lake, "mix", "--rank", rank, *common)
        packs.append(json.loads(out)["metrics"]["packs"])
    assert packs == [4, 4]


def test_a_table_for_people(lake: str) -> None:
    code, out = _load(lake, "mix", "--steps", "1", "--process", "inline")
    assert code == 0
    assert "training steps 0 to 1: 3 packs" in out.replace("\n", " ")


def test_a_trainer_s_steps_are_waited_for(lake: str) -> None:
    common = ("mix", "--steps", "4", "--process", "inline", "--json", "--step-ms", "20")
    report = json.loads(_load(lake, *common)[1])
    metrics = report["metrics"]
    assert report["step_ms"] == 20
    assert metrics["step_waits"]["count"] == 4
    assert metrics["elapsed_s"] - metrics["wait_s"] >= 3 * 0.020  # three steps lie between waits
    assert report["seconds"] >= 4 * 0.020


def test_the_live_view_goes_to_stderr(lake: str) -> None:
    common = ("load", lake, "mix", "--steps", "2", "--process", "inline", "--live", "--json")
    result = CliRunner().invoke(build_app(), common)
    assert json.loads(result.stdout)["metrics"]["packs"] == 6
    for shown in ("observed steps/s", "decode", "2/2 training steps"):
        assert shown in result.stderr
    assert result.stderr.endswith("\n")


def test_the_cache_s_settings_arrive(lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    common = ("mix", "--process", "inline", "--json", "--cache-dir", str(folder))
    for _ in range(2):
        code, out = _load(lake, *common, "--cache-gb", "0.01")
        assert code == 0
    counts = json.loads(out)["metrics"]["counts"]
    assert counts["cache_hits"] > 0
    assert json.loads(out)["metrics"]["cache_hit_share"] > 0.9


@pytest.mark.parametrize(
    "arguments", [("mox",), ("mix", "--first-step", "999"), ("mix", "--rank", "3")]
)
def test_bad_requests_end_in_our_errors(lake: str, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(build_app(), ["load", lake, *arguments])
    assert result.exit_code != 0
    assert "Error" in type(result.exception).__name__
    assert result.stdout == ""


def test_a_missing_lake(tmp_path: Path) -> None:
    result = CliRunner().invoke(build_app(), ["load", str(tmp_path / "no.lake"), "mix"])
    assert "no lake here" in str(result.exception)


def test_room_for_no_cache_is_refused(lake: str) -> None:
    result = CliRunner().invoke(build_app(), ["load", lake, "mix", "--cache-gb", "1"])
    assert result.exit_code != 0
    assert "--cache-dir" in str(result.exception)
