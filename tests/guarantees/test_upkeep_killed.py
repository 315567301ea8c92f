"""kill -9 of `headrace lake reshard` and `purge` at any moment, then the same command again.

Whoever reads meanwhile reads what was there; in the end the small fragments are joined, nothing is
lost, and of what was purged no byte is on the disk.
"""

import random
import signal
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from ingest.lake_doctor import check_lake
from lake import EpisodeWriter, Lake, create_lake, open_lake
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes
from lake.purge import purge
from tests.deaths import Died, dies_at
from tests.episodes import make_episode
from tests.guarantees.command_process import command_processes, run_command
from tests.guarantees.small_ingest import State, episodes, state

KILLS = 6
VICTIM = 3
ONCE = "<the only trace of episode 3>"


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    return command_processes("lake.purge", "lake.reshard", "catalog")


def small_lake(path: Path) -> Lake:
    """Nine episodes in nine commits, of which one is deleted."""
    lake = create_lake(path)
    with EpisodeWriter(lake, batch_episodes=1) as writer:
        for number, episode in enumerate(episodes()):
            if number == VICTIM:
                episode = make_episode(VICTIM, steps=4 + VICTIM, instruction=ONCE)  # noqa: PLW2901
            writer.add(episode)
    victim = make_episode(VICTIM, steps=4 + VICTIM).episode_id
    delete_episodes(lake, [victim], Author(who="test"))
    return lake


def killed_until_done(
    processes: ForkServerContext, lake: Lake, expected: State, life_s: float, *command: str
) -> float:
    """Kill the command at random moments of its life, then let it end; how long that took."""
    rng = random.Random(3)
    kills = KILLS if life_s else 0
    for _ in range(kills):
        process = processes.Process(target=run_command, args=command)
        process.start()
        process.join(rng.uniform(0, life_s))
        process.kill()
        process.join()
        assert process.exitcode in (-signal.SIGKILL, 0)
        assert state(open_lake(lake.uri)) == expected
    started = time.monotonic()
    process = processes.Process(target=run_command, args=command)
    process.start()
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - started


def test_reshard(tmp_path: Path, processes: ForkServerContext) -> None:
    life_s = 0.0
    for name in ("timed", "killed"):
        lake = small_lake(tmp_path / f"{name}.lake")
        expected = state(lake)
        command = ("lake", "reshard", lake.uri, "--min-rows", "2", "--max-rows", "3")
        life_s = killed_until_done(processes, lake, expected, life_s, *command)
        rows = [f.count_rows() for f in lake.latest("trajectories").get_fragments()]
        assert rows == [3, 3, 3]
        assert state(open_lake(lake.uri)) == expected
        assert check_lake(open_lake(lake.uri)) == []


def test_purge(tmp_path: Path, processes: ForkServerContext) -> None:
    life_s = 0.0
    for name in ("timed", "killed"):
        lake = small_lake(tmp_path / f"{name}.lake")
        assert on_disk(lake)
        expected = state(lake)
        # Once it is begun it needs not be told of what; a purge of nothing is none.
        command = ["lake", "purge", lake.uri, "--sweep"]
        if not life_s:
            command += ["--where", "kind = 'delete'"]
        else:
            victim = make_episode(VICTIM, steps=4 + VICTIM).episode_id
            with pytest.MonkeyPatch.context() as patch:
                dies_at(patch, "lake.purge._erase_rows", 1, after=False)
                with pytest.raises(Died):
                    purge(lake, [victim], Author(who="test"))
        life_s = killed_until_done(processes, lake, expected, life_s, *command)
        assert not on_disk(lake)
        assert state(open_lake(lake.uri)) == expected
        assert check_lake(open_lake(lake.uri)) == []
        assert lake.latest("trajectories").count_rows() == len(expected) == 8


def on_disk(lake: Lake) -> list[Path]:
    """Files that hold a trace of the deleted episode."""
    files = (path for path in Path(lake.uri).rglob("*") if path.is_file())
    return [path for path in files if ONCE.encode() in path.read_bytes()]
