"""Reads ahead of their use: order, overlap, room, errors, and the end of their threads."""

import gc
import random
import subprocess
import sys
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest

from loader.fetch import read_ahead
from loader.fetch.read_ahead import ReadAhead

_NAME = "headrace test"
_WAIT_S = 30.0  # a broken test ends


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == _NAME]


def _gated(gate: threading.Event, value: int) -> int:
    assert gate.wait(_WAIT_S)
    return value


@pytest.fixture
def reads() -> ReadAhead[int]:
    return ReadAhead("test", 3, limit_bytes=100)


def test_results_come_in_the_order_of_their_starts(reads: ReadAhead[int]) -> None:
    gates = [threading.Event() for _ in range(3)]
    for number, gate in enumerate(gates):
        reads.start(partial(_gated, gate, number))
    finished = []
    for number in (2, 1, 0):  # the last started ends first
        gates[number].set()
        finished.append(reads.ready)
    assert [reads.take() for _ in range(3)] == [0, 1, 2]
    assert finished[:2] == [False, False]
    reads.close()


def test_any_order_of_ends_gives_the_same_results() -> None:
    draw = random.Random(0)
    for _ in range(20):
        reads = ReadAhead[int]("test", 4)
        gates = [threading.Event() for _ in range(4)]
        for number, gate in enumerate(gates):
            reads.start(partial(_gated, gate, number))
        for gate in draw.sample(gates, 4):
            gate.set()
        assert [reads.take() for _ in range(4)] == [0, 1, 2, 3]
        reads.close()


def test_reads_run_at_once_and_beside_their_owner(reads: ReadAhead[int]) -> None:
    together = threading.Barrier(4)  # three reads and this thread: none passes alone

    def meet(number: int) -> int:
        together.wait(_WAIT_S)
        return number

    for number in range(3):
        reads.start(partial(meet, number))
    together.wait(_WAIT_S)
    assert [reads.take() for _ in range(3)] == [0, 1, 2]
    reads.close()


def test_no_more_threads_than_reads_under_way_need(reads: ReadAhead[int]) -> None:
    for number in range(5):  # one after the other: one thread does
        reads.start(partial(int, number))
        assert reads.take() == number
    assert len(_threads()) == 1
    gate = threading.Event()
    for number in range(9):
        reads.start(partial(_gated, gate, number))
    assert len(_threads()) == 3
    gate.set()
    assert [reads.take() for _ in range(9)] == list(range(9))
    reads.close()


def test_room_counts_what_is_read_waits_or_is_in_use(reads: ReadAhead[int]) -> None:
    assert reads.fits(1000)  # one always passes
    reads.start(partial(int, 1), 60)
    assert reads.fits(40)
    assert not reads.fits(41)
    reads.start(partial(int, 2), 40)
    assert not reads.fits(1)
    reads.take()
    assert not reads.fits(1)  # in use
    reads.release()
    assert reads.fits(60)
    assert not reads.fits(61)
    reads.take()
    reads.release()
    assert reads.fits(1000)
    reads.close()


def test_an_error_comes_in_its_place_and_later_results_behind_it(reads: ReadAhead[int]) -> None:
    class PanicError(BaseException):
        """As native code raises it."""

    def fail() -> int:
        raise PanicError("no such block")

    reads.start(partial(int, 1))
    reads.start(fail)
    reads.start(partial(int, 3))
    assert reads.take() == 1
    with pytest.raises(PanicError, match="no such block"):
        reads.take()
    assert reads.take() == 3
    with pytest.raises(IndexError):
        reads.take()
    reads.close()


def _start_many(reads: ReadAhead[int], gate: threading.Event) -> list[int]:
    """Three reads under way, nine that wait; returns what has begun."""
    begun: list[int] = []
    under_way = threading.Semaphore(0)

    def read(number: int) -> int:
        begun.append(number)
        under_way.release()
        return _gated(gate, number)

    for number in range(12):
        reads.start(partial(read, number))
    for _ in range(3):
        assert under_way.acquire(timeout=_WAIT_S)
    return begun


def _end_threads(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(_WAIT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("dropped", [False, True], ids=["close", "garbage"])
def test_the_end_leaves_no_thread(dropped: bool) -> None:  # noqa: FBT001  # parametrized
    reads = ReadAhead[int]("test", 3)
    gate = threading.Event()
    _start_many(reads, gate)
    gate.set()
    threads = _threads()
    if dropped:
        del reads
        gc.collect()
    else:
        reads.close()
    _end_threads(threads)
    assert not _threads()


def test_a_read_that_hangs_keeps_no_one_and_those_behind_it_never_begin(
    reads: ReadAhead[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_END_S", 0.0)
    gate = threading.Event()
    begun = _start_many(reads, gate)
    reads.close()
    assert len(reads) == 0
    hanging = _threads()
    assert len(hanging) == 3
    gate.set()
    _end_threads(hanging)
    assert sorted(begun) == [0, 1, 2]


def test_an_idle_thread_holds_no_result() -> None:
    class Block:
        """Stands for many bytes."""

    freed = threading.Event()
    reads = ReadAhead[Block]("test", 1)
    reads.start(Block)
    block = reads.take()
    reads.start(Block)
    reads.take()  # by now the thread has let go of the first
    weakref.finalize(block, freed.set)
    del block
    assert freed.is_set()
    reads.close()


def test_a_read_that_hangs_does_not_keep_the_interpreter() -> None:
    code = (
        "import threading\n"
        "from loader.fetch.read_ahead import ReadAhead\n"
        "reads = ReadAhead('test', 1)\n"
        "reads.start(threading.Event().wait)\n"
    )
    root = Path(read_ahead.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, timeout=_WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_fork_ends_without_the_threads_that_it_lacks() -> None:
    code = """
import os, threading
from loader.fetch.read_ahead import ReadAhead

reads, gate, locked = ReadAhead("test", 1), threading.Event(), threading.Event()
reads.start(gate.wait)


def lock() -> None:  # as a reading thread may at any moment
    with reads._reads[0][0]._condition:
        locked.set()
        gate.wait()


threading.Thread(target=lock).start()
locked.wait()
if pid := os.fork():
    gate.set()
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    root = Path(read_ahead.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=root,
        capture_output=True,
        timeout=_WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
