"""The sum of a cache folder, locked by a process that does not go on: nobody waits for long."""

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from loader.observe.metrics import LoaderMetrics
from loader.storage.node_cache import NodeCache, entry_name
from loader.storage.room import Room

_NAME = entry_name("an entry")
_HOLDER = """
import fcntl, os, signal, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeCache:
    """With room, and with an entry."""
    monkeypatch.setattr("loader.storage.room._LOCK_S", 0.05)
    cache = NodeCache(tmp_path, 1 << 20, wait_s=1.0, metrics=LoaderMetrics())
    cache.put(_NAME, b"payload")
    assert bytes(cache.get(_NAME) or b"") == b"payload"
    return cache


@pytest.fixture
def _stopped(cache: NodeCache) -> Iterator[None]:
    """Another process holds the lock, and is stopped."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(cache._folder / "size")],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield
    finally:
        holder.kill()
        holder.communicate()


def in_time(do: Callable[[], object]) -> None:
    """Call it in a thread: one that hangs fails the test, and does not hang it."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(do()), daemon=True)
    thread.start()
    thread.join(20)
    assert done, "it waits for a process that is stopped"


@pytest.mark.usefixtures("_stopped")
def test_what_cannot_be_counted_is_not_kept_and_it_is_said_once(
    cache: NodeCache, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        in_time(partial(cache.put, entry_name(str(number)), b"more"))
    assert bytes(cache.get(_NAME) or b"") == b"payload"  # what is there is found without a lock
    assert cache.get(entry_name("0")) is None
    said = capfd.readouterr().err
    assert said.count("cannot be used") == 1
    assert "its size was locked by another process" in said


@pytest.mark.usefixtures("_stopped")
def test_neither_eviction_nor_a_damaged_entry_waits(cache: NodeCache) -> None:
    with pytest.raises(TimeoutError, match="locked by another process"):
        Room(cache._folder, 1 << 20).evict()
    path = Path(cache._path(_NAME))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    in_time(lambda: cache.get(_NAME))
    assert not path.exists()


def test_threads_of_one_process_wait_together(cache: NodeCache) -> None:
    room = Room(cache._folder, 1 << 20)
    fd = os.open(cache._folder / "size", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    refused: list[OSError] = []

    def take() -> None:
        try:
            room.take(1)
        except TimeoutError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(refused) == len(threads)
    os.close(fd)
    assert room.take(1)
