"""`headrace export` as a user or a script meets it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from ingest.export.errors import ExportError
from lake import Episode, EpisodeWriter, Lake
from tools.commands import export, ingest, label, select
from tools.commands.lake_options import OptionError

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs the command line; expected errors are raised, as `tools.cli.main` gets them."""
    app = typer.Typer()
    for module in (export, ingest, label, select):
        module.register(app)

    def call(*arguments: str) -> Result:
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result

    return call


@pytest.fixture
def filled(lake: Lake, make_filmed_episode: Callable[..., Episode]) -> Lake:
    """A lake of four episodes of 11 steps, two of them successful."""
    with EpisodeWriter(lake) as writer:
        for number in range(4):
            writer.add(make_filmed_episode(number, steps=11))
    return lake


@pytest.mark.parametrize("to", ["lerobot-v3.0", "lerobot-v2.1"])
def test_a_condition_chooses_and_the_table_says_what_was_written(
    run: Run, filled: Lake, tmp_path: Path, to: str
) -> None:
    done = run("export", filled.uri, str(tmp_path / "out"), "success", "--format", to)
    assert f"exported as {to}" in done.stdout
    assert "info success-not-written" in done.stdout
    assert "(2 episodes; first shown)" in done.stdout
    info = json.loads((tmp_path / "out/meta/info.json").read_text())
    assert info["codebase_version"] == to.removeprefix("lerobot-")
    assert (info["total_episodes"], info["total_frames"], info["fps"]) == (2, 22, 10)
    again = run("ingest", str(tmp_path / "out"), str(tmp_path / "again.lake"), "--json")
    (source,) = json.loads(again.stdout)["sources"]
    assert (source["written"], source["quarantined"]) == (2, 0)


def test_a_selection_keys_and_streams_left_out_and_json(
    run: Run, filled: Lake, tmp_path: Path
) -> None:
    run("label", filled.uri, "success", "quality=0.5")
    run("select", filled.uri, "good", "success")
    out = str(tmp_path / "out")
    options = ("--rename", "note=language.note", "--leave-out", "top", "--json")
    done = run("export", filled.uri, out, "good", *options)
    report = json.loads(done.stdout)
    assert report["datasets"] == [
        {"path": out, "episodes": 2, "steps": 22, "frames": 0, "video_bytes": 0, "files": 1}
    ]
    assert report["left_out"] == 0
    assert {(f["reason"], f["count"]) for f in report["findings"]} == {
        ("success-not-written", 2),
        ("task-not-written", 2),
        ("tags-not-written", 2),
        ("quality-not-written", 2),
    }
    features = json.loads((tmp_path / "out/meta/info.json").read_text())["features"]
    assert "language.note" in features
    assert not any(feature["dtype"] == "video" for feature in features.values())


def test_what_does_not_fit_is_an_error_or_left_out(
    run: Run, lake: Lake, tmp_path: Path, make_episode: Callable[..., Episode]
) -> None:
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0))
        writer.add(replace(make_episode(1), fps=None))
    with pytest.raises(ExportError, match="1 of 2 episodes cannot be written as lerobot-v3"):
        run("export", lake.uri, str(tmp_path / "out"))
    done = run("export", lake.uri, str(tmp_path / "out"), "--on-unfit", "skip")
    assert "error no-rate" in done.stdout


def test_wrong_options_are_named(run: Run, filled: Lake, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--rename 'state': write NAME=KEY"):
        run("export", filled.uri, str(tmp_path / "out"), "--rename", "state")
    (tmp_path / "there").mkdir()
    with pytest.raises(ExportError, match="is there already"):
        run("export", filled.uri, str(tmp_path / "there"))


KILLED = """
import os, signal, sys
from ingest.export.lerobot import export as module
from tools.cli import main
real, calls = module.write_dataset, 0
def write(lake, planned, root, layout, on_episode):
    def die(episode):
        on_episode(episode)
        if WHERE == "episode" and episode.episode_id.split("_")[1].startswith("000002"):
            os.kill(os.getpid(), signal.SIGKILL)
    done = real(lake, planned, root, layout, die)
    if WHERE == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    return done
module.write_dataset = write
sys.argv[1:] = ["export", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("where", ["episode", "end"])
def test_killed_anywhere_nothing_is_there_and_the_next_run_is_whole(
    run: Run, filled: Lake, tmp_path: Path, where: str
) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", f"WHERE = {where!r}\n{KILLED}", filled.uri, str(out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not out.exists()
    run("export", filled.uri, str(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "robots.lake"]
    info = json.loads((out / "meta/info.json").read_text())
    assert info["total_episodes"] == 4
    assert sorted(path.name for path in out.iterdir()) == ["data", "meta", "videos"]
