"""Writers may die at any moment: nothing is lost, nothing is doubled, and the next one completes.

Deaths between any two steps of a commit are forced in this process; real ones are SIGKILLs of a
process that writes, at instants spread over its whole life.
"""

import multiprocessing
import random
import signal
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from lake import Lake, create_lake, open_lake, read_episode
from tests.deaths import Died, dies_at, resolve
from tests.guarantees.small_ingest import (
    BATCH,
    EPISODES,
    State,
    episodes,
    ingest,
    ingest_in_process,
    state,
)

# Every call of the writer that changes the lake. The process dies right before or right after it.
BOUNDARIES = [
    "lake.writer.insert_new",
    "lake.writer.add_missing_columns",
    "lake.writer.write_fragments",
    "lake.append.lance.LanceDataset.commit_batch",
    "lake.writer.record",
]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> State:
    lake = create_lake(tmp_path_factory.mktemp("whole") / "x.lake")
    ingest(lake, episodes())
    whole = state(lake)
    assert len(whole) == EPISODES
    return whole


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 4])
@pytest.mark.parametrize("target", BOUNDARIES)
def test_death_between_any_two_steps(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    uninterrupted: State,
    target: str,
    call: int,
    when: str,
) -> None:
    with monkeypatch.context() as patch:
        died = dies_at(patch, target, call, after=when == "after")
        try:
            ingest(lake, episodes())
        except Died:
            assert died()
    # Whoever reads now sees whole commits only.
    seen = state(lake)
    assert len(seen) % BATCH == 0
    assert seen.items() <= uninterrupted.items()
    writer = ingest(open_lake(lake.uri), episodes())
    assert writer.report.written + writer.report.adopted == EPISODES - len(seen)
    assert state(lake) == uninterrupted
    assert lake.dataset("trajectories").count_rows() == EPISODES


def test_what_a_dead_writer_left_is_adopted_not_written_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, uninterrupted: State
) -> None:
    with monkeypatch.context() as patch:
        dies_at(patch, "lake.writer.record", 2, after=False)
        with pytest.raises(Died):
            ingest(lake, episodes())
    assert not state(lake)
    writer = ingest(lake, episodes())
    assert (writer.report.adopted, writer.report.written) == (BATCH, EPISODES - BATCH)
    assert state(lake) == uninterrupted
    assert lake.dataset("trajectories").count_rows() == EPISODES


def test_several_deaths_in_a_row(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, uninterrupted: State
) -> None:
    for target in [*BOUNDARIES, *reversed(BOUNDARIES)]:
        with monkeypatch.context() as patch:
            dies_at(patch, target, 2, after=True)
            try:
                ingest(lake, episodes())
            except Died:
                assert state(lake).items() <= uninterrupted.items()
    ingest(lake, episodes())
    assert state(lake) == uninterrupted
    assert lake.dataset("trajectories").count_rows() == EPISODES


def test_an_append_whose_reply_got_lost_is_not_repeated(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, uninterrupted: State
) -> None:
    real = resolve("lake.append.lance.LanceDataset.commit_batch")

    def reply_lost(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        raise OSError("connection reset")

    monkeypatch.setattr("lake.append.lance.LanceDataset.commit_batch", reply_lost)
    assert ingest(lake, episodes()).report.written == EPISODES
    assert state(lake) == uninterrupted
    assert lake.dataset("trajectories").count_rows() == EPISODES


def test_an_append_applied_twice_is_seen_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, uninterrupted: State
) -> None:
    real = resolve("lake.append.lance.LanceDataset.commit_batch")

    def twice(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr("lake.append.lance.LanceDataset.commit_batch", twice)
    ingest(lake, episodes())
    assert lake.dataset("trajectories").count_rows() == 2 * EPISODES
    assert state(lake) == uninterrupted


def start(lake: Lake, *, backwards: bool = False) -> tuple[ForkServerProcess, Connection]:
    """A writer in a process of its own, and the pipe to start it by and hear of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.guarantees.small_ingest"])
    mine, theirs = context.Pipe()
    process = context.Process(
        target=ingest_in_process, args=(lake.uri, theirs), kwargs={"backwards": backwards}
    )
    process.start()
    theirs.close()
    return process, mine


def release(pipe: Connection) -> None:
    assert pipe.recv() == "ready"
    pipe.send("go")


def test_kill_nine_at_any_moment(tmp_path: Path, uninterrupted: State) -> None:
    """20 deaths by SIGKILL, spread over the life of a writer; several to a lake."""
    rng = random.Random(5)
    process, pipe = start(create_lake(tmp_path / "timed.lake"))
    release(pipe)
    started = time.monotonic()
    pipe.recv()
    life_s = time.monotonic() - started
    process.join()
    killed = lakes = 0
    while killed < 20:
        lakes += 1
        lake = create_lake(tmp_path / f"{lakes}.lake")
        # Their start takes most of the time, so they start together and work one after another.
        for process, pipe in [start(lake) for _ in range(5)]:
            release(pipe)
            process.join(rng.uniform(0, life_s))
            process.kill()
            process.join()
            pipe.close()
            killed += process.exitcode == -signal.SIGKILL
            assert state(lake).items() <= uninterrupted.items()
        ingest(open_lake(lake.uri), episodes())
        assert state(lake) == uninterrupted
        for episode in episodes():
            found = read_episode(lake, episode.episode_id)
            assert found.content_sha256() == episode.content_sha256()


def test_racing_threads_write_each_episode_once(lake: Lake, uninterrupted: State) -> None:
    barrier = threading.Barrier(8)
    reports = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            mine = open_lake(lake.uri)
            barrier.wait()
            reports.append(ingest(mine, episodes()).report)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(report.written + report.adopted for report in reports) == EPISODES
    assert state(lake) == uninterrupted


def test_racing_processes_write_each_episode_once(lake: Lake, uninterrupted: State) -> None:
    running = [start(lake), start(lake, backwards=True)]
    for _, pipe in running:
        release(pipe)
    reports = [pipe.recv() for _, pipe in running]
    for process, pipe in running:
        process.join()
        pipe.close()
        assert process.exitcode == 0
    assert sum(report.written + report.adopted for report in reports) == EPISODES
    assert state(lake) == uninterrupted


def test_equal_lakes_are_equal_in_any_order(lake: Lake, uninterrupted: State) -> None:
    ingest(lake, list(reversed(episodes())))
    assert state(lake) == uninterrupted
