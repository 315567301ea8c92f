"""How many requests all processes of a node may have under way at an object store.

A read takes a slot: a lock on one of a few files in a folder of the node. The kernel releases it
however the process ends. A read keeps several requests under way, which its process fixes when
Lance starts (`LANCE_IO_THREADS`), so there are as many slots as the budget holds such reads.
"""

import contextlib
import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loader.storage.cache_folder import SLOTS, cache_folder

_VARIABLE: Final = "LANCE_IO_THREADS"
_LANCE_DEFAULT: Final = 64
_PER_READ: Final = 16


def limit_requests_per_read(requests_per_node: int) -> None:
    """Let each read of this process keep 16 requests under way in place of Lance's 64.

    To be called before Lance opens anything, in processes that are ours; a value that the user
    has set stays.
    """
    os.environ.setdefault(_VARIABLE, str(min(_PER_READ, requests_per_node)))


class RequestBudget:
    """The slots of a node; safe to use from several threads and processes.

    Where the folder cannot be used, nothing is limited.

    Args:
        requests_per_node: the budget.
        cache_dir: folder of the node's cache, in which the slots lie then; `None` for a folder per
            user below the system's for temporary files.
    """

    def __init__(self, requests_per_node: int, cache_dir: str | None = None) -> None:
        per_read = os.environ.get(_VARIABLE, "")
        requests = int(per_read) if per_read.isdigit() and int(per_read) else _LANCE_DEFAULT
        self.slots: Final = max(1, requests_per_node // requests)
        if cache_dir is None:
            self._folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
        else:
            self._folder = cache_folder(cache_dir) / SLOTS

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot; waits where all are taken."""
        try:
            fd = self._locked()
        except OSError:
            yield
            return
        try:
            yield
        finally:
            os.close(fd)

    def _locked(self) -> int:
        """A descriptor that holds the lock of a slot."""
        order = random.sample(range(self.slots), self.slots)
        fd = -1
        for number in order:
            fd = self._open(number)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            except OSError:
                os.close(fd)
                raise
            else:
                return fd
        fd = self._open(order[0])
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _open(self, number: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        path = self._folder / f"slot-{number}"
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, flags, 0o600)
