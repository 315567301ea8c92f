"""How many requests all processes of a node may have under way at an object store.

A read holds one of a few slots, which are locked files in a folder of the node: the kernel unlocks
them however the process ends. A read keeps several requests under way, as many as its process lets
it (`LANCE_IO_THREADS`), so there are as many slots as the budget holds such reads.

The budget is there to be kind to the store, never to stop a job: who waits too long reads without,
and one process holds half of the slots at most, so that one that is stopped leaves some to others.
"""

import contextlib
import fcntl
import hashlib
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
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


def limit_requests_per_read(requests_per_node: int) -> None:
    """Let each read of this process keep few requests under way, in place of Lance's 64.

    To be called before Lance opens anything, in processes that are ours; a value that the user
    has set stays.
    """
    os.environ.setdefault(_VARIABLE, str(_per_read(requests_per_node)))


class RequestBudget:
    """The slots of a node for one store; safe to use from several threads and processes.

    In a process that is not ours, how many requests a read has under way is Lance's own choice;
    it is counted like a read of ours.

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
        self._ours = threading.BoundedSemaphore((self.slots + 1) // 2)
        self._in_vain_until: float | None = None
        store = urlsplit(uri)
        self._store = f"{store.scheme}://{store.netloc}"
        self._name = hashlib.sha256(self._store.encode()).hexdigest()[:16]
        if cache_dir is None:
            self._folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
        else:
            self._folder = cache_folder(cache_dir) / SLOTS
        self._warned = False

    @contextlib.contextmanager
    def slot(
        self,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[None]:
        """Hold a slot; where all are taken, wait for one, a minute at the most.

        After a minute in vain, the waits of the next minutes are short.

        Args:
            sleep: waits; True where there is nothing to wait for any more.
            clock: monotonic seconds.
        """
        fd = None
        try:
            fd = self._waited_for(sleep, clock)
        except OSError as error:
            self._warn(f"{self._folder} cannot be used ({error.strerror})")
        try:
            yield
        finally:
            if fd is not None:
                os.close(fd)
                self._ours.release()

    def _waited_for(
        self, sleep: Callable[[float], object], clock: Callable[[], float]
    ) -> int | None:
        """The descriptor that holds a slot; None after waiting for too long."""
        begin, until = clock(), self._in_vain_until
        wait_s = _LONGEST_WAIT_S if until is None or begin >= until else _SHORT_WAIT_S
        while clock() < begin + wait_s:
            if (fd := self._free_slot()) is not None:
                return fd
            # Drawn, so that those who wait do not come together.
            if sleep(random.random() * _LOOK_AGAIN_S):  # noqa: S311 - no secret
                return None
        if wait_s == _LONGEST_WAIT_S:
            self._in_vain_until = clock() + _IN_VAIN_S
            self._warn(f"none of its {self.slots} reads has ended for {_LONGEST_WAIT_S:.0f} s")
        return None

    def _free_slot(self) -> int | None:
        if not self._ours.acquire(blocking=False):
            return None
        fd = None
        try:
            for number in range(self.slots):
                if (fd := self._locked(number)) is not None:
                    return fd
            return None
        finally:
            if fd is None:
                self._ours.release()

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
