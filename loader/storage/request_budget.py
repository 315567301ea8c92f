"""How many requests all processes of a node may have under way at an object store.

A read holds one of a few slots, which are locked files in a folder of the node: the kernel unlocks
them however the process ends. A read keeps several requests under way, as many as its process lets
it (`LANCE_IO_THREADS`), so there are as many slots as the budget holds such reads.

The budget is there to be kind to the store, never to stop a job: who waits too long reads without,
and one process holds half of the slots at most, so that one that is stopped leaves some to others.
Who waits looks again and again, some twenty times a second; in each process as many threads as its
half has slots, while the others wait for those.
"""

import contextlib
import fcntl
import functools
import hashlib
import math
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from loader.storage.cache_folder import SLOTS, cache_folder

_VARIABLE: Final = "LANCE_IO_THREADS"
_PER_READ: Final = 16
_LEAST_READS: Final = 4  # at once, so that one that stalls is not waited for by all others
_LOOK_AGAIN_S: Final = 0.05  # at the latest; a read takes longer than that
_LONGEST_WAIT_S: Final = 60.0
# Once a wait was in vain others will be: for some minutes reads soon go on without a slot.
_SHORT_WAIT_S: Final = 1.0
_IN_VAIN_S: Final = 300.0

T = TypeVar("T")
Sleep = Callable[[float], object]
Clock = Callable[[], float]


def limit_requests_per_read(requests_per_node: int) -> None:
    """Let each read of this process keep few requests under way, in place of Lance's 64.

    To be called before Lance opens anything, in processes that are ours; a value that the user
    has set stays.
    """
    os.environ.setdefault(_VARIABLE, str(_per_read(requests_per_node)))


def budget_of_process(
    uri: str, requests_per_node: int, cache_dir: str | None = None
) -> "RequestBudget":
    """The one of this process for a store, whoever reads; arguments as of `RequestBudget`."""
    told = os.environ.get(_VARIABLE, "")
    return _of_process(os.getpid(), told, _store_of(uri), requests_per_node, cache_dir)


class RequestBudget:
    """The slots of a node for one store; safe to use from several threads and processes.

    In a process that is not ours, how many requests a read has under way is Lance's own choice;
    it is counted like a read of ours.

    Attributes:
        slots: of the node.
        most: of them, that are held through this object.

    Args:
        uri: of a lake: all in its bucket share the slots.
        requests_per_node: the budget.
        cache_dir: folder of the node's cache, in which the slots lie then; `None` for a folder per
            user below the system's for temporary files.
    """

    def __init__(self, uri: str, requests_per_node: int, cache_dir: str | None = None) -> None:
        told = os.environ.get(_VARIABLE, "")
        per_read = int(told) if told.isdigit() else 0
        self.slots: Final = max(1, requests_per_node // (per_read or _per_read(requests_per_node)))
        self.most: Final = max(1, self.slots // 2)
        self._ours = threading.BoundedSemaphore(self.most)
        self._in_vain_until = -math.inf
        self._store = _store_of(uri)
        self._name = hashlib.sha256(self._store.encode()).hexdigest()[:16]
        if cache_dir is None:
            self._folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
        else:
            self._folder = cache_folder(cache_dir) / SLOTS
        self._warned = False

    @contextlib.contextmanager
    def slot(self, sleep: Sleep = time.sleep, clock: Clock = time.monotonic) -> Iterator[None]:
        """Hold a slot; where all are taken, wait for one, a minute at the most.

        After a minute in vain, the waits of the next minutes are short. Before that, other reads
        of this process are waited for where those hold its half of the slots, as long.

        Args:
            sleep: waits; True where there is nothing to wait for any more.
            clock: monotonic seconds.
        """
        with contextlib.ExitStack() as held:
            with contextlib.suppress(_ClosingError):
                self._hold(held, sleep, clock)
            yield

    def _hold(self, held: contextlib.ExitStack, sleep: Sleep, clock: Clock) -> None:
        """Take a share of this process, then a slot of the node, as far as they come in time."""
        ours = _wait_for(
            lambda: self._ours.acquire(blocking=False) or None, _LONGEST_WAIT_S, sleep, clock
        )
        if ours is None:
            self._warn(
                f"none of this process's {self.most} reads has ended for {_LONGEST_WAIT_S:.0f} s"
            )
            return
        held.callback(self._ours.release)
        short = clock() < self._in_vain_until
        wait_s = _SHORT_WAIT_S if short else _LONGEST_WAIT_S
        try:
            fd = _wait_for(self._free_slot, wait_s, sleep, clock)
        except OSError as error:
            self._warn(f"{self._folder} cannot be used ({error.strerror})")
            return
        if fd is not None:
            held.callback(os.close, fd)
        elif not short:
            self._in_vain_until = clock() + _IN_VAIN_S
            self._warn(f"none of its {self.slots} reads has ended for {_LONGEST_WAIT_S:.0f} s")

    def _free_slot(self) -> int | None:
        """The descriptor that holds a slot, None where all are taken."""
        for number in range(self.slots):
            if (fd := self._locked(number)) is not None:
                return fd
        return None

    def _locked(self, number: int) -> int | None:
        path = self._folder / f"{self._name}-{number}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd

    def _warn(self, problem: str) -> None:
        if self._warned:
            return
        self._warned = True
        print(
            f"headrace: the budget of requests to {self._store} is not kept: {problem}; reading on"
            " without it",
            file=sys.stderr,
            flush=True,
        )


def _per_read(requests_per_node: int) -> int:
    return max(1, min(_PER_READ, requests_per_node // _LEAST_READS))


class _ClosingError(Exception):
    """There is nothing to wait for any more."""


def _wait_for(
    look: Callable[[], T | None], longest_s: float, sleep: Sleep, clock: Clock
) -> T | None:
    """Look until something is there; None where nothing was in time.

    Raises:
        _ClosingError: `sleep` says so.
    """
    deadline = clock() + longest_s
    while clock() < deadline:
        if (found := look()) is not None:
            return found
        # Drawn, so that those who wait do not come together.
        if sleep(random.random() * _LOOK_AGAIN_S):  # noqa: S311 - no secret
            raise _ClosingError
    return None


def _store_of(uri: str) -> str:
    store = urlsplit(uri)
    return f"{store.scheme}://{store.netloc}"


@functools.cache
def _of_process(
    _pid: int,  # a fork starts anew: it does not hold what its parent holds
    _told: str,
    store: str,
    requests_per_node: int,
    cache_dir: str | None,
) -> RequestBudget:
    return RequestBudget(store, requests_per_node, cache_dir)
