"""kill -9 of `headrace ingest` at any moment, then the same command again: nothing lost or doubled.

The whole command runs in a process of its own and is killed from outside, at instants spread over
its working life, several times to a lake; then it may finish, and the lake must be the same as one
that was made in one go: ids, content, labels, statistics and quarantine.
"""

import random
import signal
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from ingest.lake_doctor import check_lake
from lake import create_lake, open_lake
from tests.guarantees.command_process import command_processes, run_command
from tests.guarantees.small_ingest import State, state
from tests.ingest.lerobot_data import v2_data, v2_video, write_v2, write_v3

KILLS = 20
KILLS_PER_LAKE = 5
TOP = "observation.images.top"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three datasets: two sound, one with a lost episode and a damaged video."""
    folder = tmp_path_factory.mktemp("recordings")
    write_v3(folder / "many", (6, 4, 5, 3))
    write_v2(folder / "plain", (4, 3, 2))
    broken = write_v2(folder / "broken", (3, 4, 5))
    (broken / v2_data(0)).unlink()
    (broken / v2_video(TOP, 1)).write_bytes(b"no video")
    return folder


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    return command_processes("ingest.pipeline", "lake.writer")


def whole(lake: Path) -> tuple[State, set[str]]:
    """What makes two lakes equal, quarantine included; each episode stored once."""
    opened = open_lake(lake)
    episodes = state(opened)
    assert opened.dataset("trajectories").count_rows() == len(episodes)
    refused = opened.dataset("quarantine").to_table()["quarantine_key"].to_pylist()
    assert len(set(refused)) == len(refused)
    return episodes, set(refused)


def test_kill_nine_then_the_same_command_again(
    source: Path, tmp_path: Path, processes: ForkServerContext
) -> None:
    def start(lake: Path) -> ForkServerProcess:
        arguments = ("ingest", str(source), str(lake), "--commit-episodes", "2")
        process = processes.Process(target=run_command, args=arguments)
        process.start()
        return process

    # The first start pays for the imports; the second is one whole life.
    for name in ("first.lake", "whole.lake"):
        began = time.monotonic()
        process = start(tmp_path / name)
        process.join()
        life_s = time.monotonic() - began
        assert process.exitcode == 0
    expected = whole(tmp_path / "whole.lake")
    assert (len(expected[0]), len(expected[1])) == (9, 2)
    assert whole(tmp_path / "first.lake") == expected

    rng = random.Random(7)
    killed = lakes = 0
    while killed < KILLS:
        lakes += 1
        lake = tmp_path / f"{lakes}.lake"
        for _ in range(KILLS_PER_LAKE):
            process = start(lake)
            process.join(rng.uniform(0.02, 0.8) * life_s)
            process.kill()
            process.join()
            killed += process.exitcode == -signal.SIGKILL
            # Whoever reads between two tries sees whole episodes only.
            if (lake / "commits.lance").is_dir():
                assert state(create_lake(lake)).items() <= expected[0].items()
            if process.exitcode == 0:
                break
        process = start(lake)
        process.join()
        assert process.exitcode == 0
        assert whole(lake) == expected
        assert [f for f in check_lake(open_lake(lake)) if f.severity == "error"] == []
