"""`headrace lake` as a user or a script meets it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from lake import Episode, EpisodeWriter, Lake, read_episode, visible_episodes
from lake.errors import EditError, HeadraceError
from tools.commands import label, sql
from tools.commands import lake as lake_commands

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs the command line; expected errors are raised, as `tools.cli.main` gets them."""
    app = typer.Typer()
    for module in (sql, label, lake_commands):
        module.register(app)

    def call(*arguments: str) -> Result:
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result

    return call


@pytest.fixture
def ids(lake: Lake, make_episode: Callable[..., Episode]) -> list[str]:
    """Ids of four episodes of 5, 6, 7 and 8 steps, each in a commit of its own."""
    episodes = [make_episode(number, steps=5 + number) for number in range(4)]
    with EpisodeWriter(lake, batch_episodes=1) as writer:
        for episode in episodes:
            writer.add(episode)
    return [episode.episode_id for episode in episodes]


def seen(lake: Lake) -> list[str]:
    lake.refresh()
    found: list[str] = visible_episodes(lake)["episode_id"].to_pylist()
    return sorted(found)


def answer(run: Run, lake: Lake, query: str) -> Any:
    return json.loads(run("sql", lake.uri, query, "--json").stdout)


def test_delete_and_undelete(run: Run, lake: Lake, ids: list[str]) -> None:
    dry = run("lake", "delete", lake.uri, "--where", "num_steps < 7", "--dry-run")
    assert "delete (dry run, nothing was changed): 2 hidden, 0 shown" in dry.stdout
    assert seen(lake) == sorted(ids)
    options = ("--why", "too short", "--who", "ada", "--json")
    done = run("lake", "delete", lake.uri, "--where", "num_steps < 7", *options)
    document = json.loads(done.stdout)
    assert (document["number"], document["kind"], document["who"]) == (1, "delete", "ada")
    assert sorted(document["hidden"]) == sorted(ids[:2])
    assert seen(lake) == sorted(ids[2:])
    hidden = answer(run, lake, "SELECT episode_id, who, why FROM hidden_episodes ORDER BY 1")
    assert hidden == [{"episode_id": i, "who": "ada", "why": "too short"} for i in sorted(ids[:2])]
    with pytest.raises(HeadraceError, match="no hidden episode matches"):
        run("lake", "undelete", lake.uri, "--where", "num_steps > 99")
    with pytest.raises(HeadraceError, match="gives no column episode_id"):
        run("lake", "undelete", lake.uri, "--where", "SELECT 1")
    run("lake", "undelete", lake.uri, "--where", "num_steps = 5")
    assert seen(lake) == sorted([ids[0], *ids[2:]])


def test_split_merge_and_undo(run: Run, lake: Lake, ids: list[str]) -> None:
    split = run("lake", "split", lake.uri, ids[3], "--at", "2", "--at", "6", "--json")
    parts = list(json.loads(split.stdout)["new"])
    assert list(json.loads(split.stdout)["new"].values()) == [2, 4, 2]
    with pytest.raises(EditError, match="before the end of the one before"):
        run("lake", "merge", lake.uri, parts[2], parts[0])
    done = run("lake", "merge", lake.uri, parts[2], parts[0], "--gap-ms", "1.5", "--id", "ends")
    assert "merge (edit 2): 2 hidden, 1 shown" in done.stdout
    assert "ends: 4 steps" in done.stdout
    stamps = read_episode(lake, "ends").timestamps_ns
    assert stamps[2] - stamps[1] == 1_500_000
    rows = answer(run, lake, "SELECT num_steps FROM episodes WHERE locator LIKE 'episode 3%'")
    assert sorted(row["num_steps"] for row in rows) == [4, 4]
    for edit in ("2", "1"):
        run("lake", "undo", lake.uri, edit)
    assert seen(lake) == sorted(ids)


def test_edits_are_listed(run: Run, lake: Lake, ids: list[str]) -> None:
    assert "no edits" in run("lake", "edits", lake.uri).stdout
    run("lake", "delete", lake.uri, "--where", "num_steps = 5", "--who", "ada", "--why", "noise")
    run("label", lake.uri, "num_steps = 6", "split=test", "--why", "held out")
    listed = json.loads(run("lake", "edits", lake.uri, "--json").stdout)
    assert [(e["kind"], e["why"], e["episode_ids"]) for e in listed] == [
        ("delete", "noise", [ids[0]]),
        ("relabel", "held out", [ids[1]]),
    ]
    assert listed[1]["detail"] == {"labels": {"split": "test"}}
    text = run("lake", "edits", lake.uri).stdout
    assert "ada" in text
    assert "held out" in text
    kinds = answer(run, lake, "SELECT edit, kind, why FROM edits ORDER BY edit")
    assert kinds[1] == {"edit": 2, "kind": "relabel", "why": "held out"}


def test_reshard(run: Run, lake: Lake, ids: list[str]) -> None:
    told = run("lake", "reshard", lake.uri, "--dry-run")
    assert "dry run: nothing was changed" in told.stdout
    assert len(lake.latest("trajectories").get_fragments()) == 4
    tables = json.loads(run("lake", "reshard", lake.uri, "--json", "--clean-days", "0").stdout)
    (done,) = [table for table in tables if table["table"] == "trajectories"]
    assert done == {
        "table": "trajectories", "fragments_before": 4, "fragments_after": 1, "rows": 4
    }  # fmt: skip
    assert len(lake.latest("trajectories").versions()) == 1
    assert "nothing to join" in run("lake", "reshard", lake.uri).stdout
    assert seen(lake) == sorted(ids)


def test_purge(run: Run, lake: Lake, ids: list[str]) -> None:
    with pytest.raises(HeadraceError, match="no hidden episode matches"):
        run("lake", "purge", lake.uri, "--where", "true")
    run("lake", "delete", lake.uri, "--where", "num_steps = 5")
    told = json.loads(
        run("lake", "purge", lake.uri, "--where", "true", "--dry-run", "--json").stdout
    )
    assert (told["dry_run"], told["episode_ids"], told["rows"]["stats"]) == (True, [ids[0]], 3)
    assert Path(lake.uri, "catalog.duckdb").exists()
    done = run("lake", "purge", lake.uri, "--where", "kind = 'delete'", "--why", "asked to")
    assert "1 episodes erased; rows: trajectories 1, episodes 1, stats 3, commits 1" in done.stdout
    assert not Path(lake.uri, "catalog.duckdb").exists()
    assert "0 episodes erased; rows: none" in run("lake", "purge", lake.uri).stdout
    assert seen(lake) == sorted(ids[1:])
    assert answer(run, lake, "FROM hidden_episodes") == []
