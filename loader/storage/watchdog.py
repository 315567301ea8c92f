"""Speaks up when something takes long: what, for how long, and what every thread is doing."""

import contextlib
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_STACK_FRAMES: Final = 16


@dataclass(eq=False)
class _Watched:
    what: Callable[[], str]
    begin: float
    thread: str
    reports: int = 0


class Watchdog:
    """Reports whatever runs longer than `warn_after_s`, again after every such interval.

    Its thread starts with the first thing to watch, and ends by `close` or with this object.

    Args:
        warn_after_s: interval.
        on_slow: called once for each thing that runs longer.
        report: takes the text; stderr where not given.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        warn_after_s: float,
        on_slow: Callable[[], None] = lambda: None,
        *,
        report: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn_after_s = warn_after_s
        self._on_slow = on_slow
        self._report = report or to_stderr
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: set[_Watched] = set()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        weakref.finalize(self, self._closed.set)

    @contextlib.contextmanager
    def watching(self, what: Callable[[], str]) -> Iterator[None]:
        """Watch what runs inside; `what` tells what that is, at the moment of the report."""
        watched = _Watched(what, self._clock(), threading.current_thread().name)
        with self._lock:
            self._watched.add(watched)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=_run,
                    args=(weakref.ref(self), self._closed, self._warn_after_s),
                    name="watchdog",
                    daemon=True,
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._watched.discard(watched)

    def check(self) -> float:
        """Report what is due; seconds until something may be due next."""
        now = self._clock()
        due, next_s = [], self._warn_after_s
        with self._lock:
            for watched in self._watched:
                left = watched.begin + (watched.reports + 1) * self._warn_after_s - now
                if left <= 0:
                    watched.reports = int((now - watched.begin) / self._warn_after_s)
                    due.append(watched)
                else:
                    next_s = min(next_s, left)
        for watched in due:
            if watched.reports == 1:
                self._on_slow()
        if due:
            lines = [
                f"headrace: {watched.what()} takes {now - watched.begin:.0f} s already, in thread"
                f" {watched.thread}"
                for watched in sorted(due, key=lambda watched: watched.begin)
            ]
            self._report("\n".join([*lines, all_stacks()]))
        return next_s

    def close(self) -> None:
        """End the thread and wait for it."""
        self._closed.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()


def _run(watchdog: "weakref.ref[Watchdog]", closed: threading.Event, wait_s: float) -> None:
    while not closed.wait(wait_s):
        alive = watchdog()
        if alive is None:
            return
        wait_s = alive.check()
        del alive  # while it waits, the thread keeps nothing


class WaitNotice:
    """Reports a wait that is looked at from time to time anyway, once per interval.

    Args:
        warn_after_s: interval.
        what: tells what is waited for, at the moment of the report.
        report: takes the text; stderr where not given.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        warn_after_s: float,
        what: Callable[[], str],
        *,
        report: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn_after_s = warn_after_s
        self._what = what
        self._report = report or to_stderr
        self._clock = clock
        self._begin = clock()
        self._reports = 0

    def check(self) -> bool:
        """Say how long it lasts, if that is due; whether it was."""
        waited_s = self._clock() - self._begin
        due = waited_s >= (self._reports + 1) * self._warn_after_s
        if due:
            self._reports = int(waited_s / self._warn_after_s)
            self._report(f"headrace: waited {waited_s:.0f} s for {self._what()}")
        return due


def all_stacks() -> str:
    """The Python stack of every thread but ours, innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - as faulthandler, but to any stderr
        if ident != threading.get_ident():
            stack = "".join(traceback.format_stack(frame)[-_STACK_FRAMES:]).rstrip()
            parts.append(f"thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)


def to_stderr(text: str) -> None:
    """Print on what is stderr at this moment."""
    print(text, file=sys.stderr, flush=True)
