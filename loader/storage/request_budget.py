"""How many requests all processes of a node may have under way at an object store.

A read holds one of a few slots, which are claims in a folder of the node: the kernel releases them
however the process ends. A read keeps several requests under way, which its process fixes when
Lance starts (`LANCE_IO_THREADS`), so there are as many slots as the budget holds such reads.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loader.storage.cache_folder import SLOTS, cache_folder
from loader.storage.claims import Claims

_VARIABLE: Final = "LANCE_IO_THREADS"
_LANCE_DEFAULT: Final = 64
_PER_READ: Final = 16
_LONGEST_WAIT_S: Final = 60.0  # before it is looked again, to be safe


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
        self._claims = Claims(self._folder)

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot; waits where all are taken."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._enter(stack)
            yield

    def _enter(self, stack: contextlib.ExitStack) -> None:
        """Hold a slot until the stack is closed."""
        names = [f"slot-{number}" for number in range(self.slots)]
        # One at a time looks for a slot, so that each that becomes free wakes one of all who wait.
        with self._turn():
            while True:
                with contextlib.ExitStack() as attempt:
                    if attempt.enter_context(self._claims.claim(names, most=1)):
                        stack.push(attempt.pop_all())
                        return
                self._claims.wait(names, _LONGEST_WAIT_S, for_any=True)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        path = self._folder / "turn"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._claims.clean()
            fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
