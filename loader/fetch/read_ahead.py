"""Reads that run in threads ahead of their use: in order, bounded by their owner, cancellable."""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

_END_S: Final = 1.0

T = TypeVar("T")

_Task = tuple["Future[Any]", Callable[[], Any]]


class ReadAhead(Generic[T]):
    """Starts reads and gives back their results in the order in which they were started.

    A read raises where its result is taken, so that an error comes behind all results before it.
    `close`, the garbage collector or the interpreter's exit ends the threads: reads that wait for
    one are never begun, those under way are waited for, a second at most. What hangs longer in
    native code cannot be interrupted; its thread ends with it and keeps nobody.

    For use from one thread at a time; the reads themselves run in others.

    Args:
        what: names the threads.
        threads: the most reads under way at once; further ones wait for a thread.
        limit_bytes: what results may take, from the start of their read on, until they are used up.
    """

    def __init__(self, what: str, threads: int, *, limit_bytes: int = 0) -> None:
        self._what = what
        self._most_threads = threads
        self._limit = limit_bytes
        self._in_use = 0  # bytes of the result that was taken last
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._reads: deque[tuple[Future[T], int]] = deque()
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(
            self, _end, os.getpid(), self._tasks, self._reads, self._threads
        )

    def __len__(self) -> int:
        """Reads that were started and not yet taken."""
        return len(self._reads)

    def fits(self, nbytes: int) -> bool:
        """Whether a read of so many bytes has room; a single one always has."""
        held = self._in_use + sum(size for _, size in self._reads)
        return not held or held + nbytes <= self._limit

    @property
    def ready(self) -> bool:
        """Whether there is a result that `take` need not wait for."""
        return bool(self._reads) and self._reads[0][0].done()

    def start(self, read: Callable[[], T], nbytes: int = 0) -> None:
        """Start a read of so many bytes; it must not refer to this object."""
        future: Future[T] = Future()
        self._reads.append((future, nbytes))
        self._tasks.put((future, read))
        unfinished = sum(not started.done() for started, _ in self._reads)
        if len(self._threads) < min(unfinished, self._most_threads):
            thread = threading.Thread(
                target=_serve, args=(self._tasks,), name=f"headrace {self._what}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def take(self) -> T:
        """The result of the oldest read that was not yet taken; waits for it.

        Raises:
            BaseException: what the read raised.
            IndexError: none was started.
        """
        future, self._in_use = self._reads.popleft()
        try:
            return future.result()
        finally:
            del future  # an error refers to this frame

    def release(self) -> None:
        """The result that was taken last is used up; taking the next one says so too."""
        self._in_use = 0

    def close(self) -> None:
        """End the threads; what was not taken is dropped."""
        self._end()


def _serve(tasks: "SimpleQueue[_Task | None]") -> None:
    while (task := tasks.get()) is not None:
        future, read = task
        if future.set_running_or_notify_cancel():
            try:
                result = read()
            except BaseException as error:  # noqa: BLE001  # panics of native code are no Exceptions
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del task, future, read  # an idle thread holds nothing


def _end(
    owner_pid: int,
    tasks: "SimpleQueue[_Task | None]",
    reads: "deque[tuple[Future[Any], int]]",
    threads: list[threading.Thread],
) -> None:
    if os.getpid() != owner_pid:
        return  # a fork has none of the threads, and what they had locked stays locked
    for future, _ in reads:
        future.cancel()
    reads.clear()
    for _ in threads:
        tasks.put(None)
    deadline = time.monotonic() + _END_S
    for thread in threads:
        # The garbage collector may call from any thread, one of these included.
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
    threads.clear()
