"""Names that one process of a node has at a time, and that others can wait for.

A claim is a name in a folder: a hard link to a FIFO whose reading end the claimer holds open. The
others open the writing end and poll it: the kernel reports an error there the moment that the last
reader is gone, whether it let go or was killed. So a wait ends by itself, is bounded by a time-out,
and nobody looks again and again.
"""

import contextlib
import os
import select
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_FIFO: Final = "fifo-"
_FRESH_S: Final = 60.0


class Claims:
    """The claims of one folder, shared by all processes of the node.

    Args:
        folder: on a local disk, holding nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def claim(self, names: Iterable[str]) -> Iterator[set[str]]:
        """Claim what nobody else has; the names that are ours until the block ends.

        Args:
            names: of files; no claim begins with `fifo-`.

        Raises:
            OSError: the folder cannot be written.
        """
        fifo = self._folder / f"{_FIFO}{uuid.uuid4().hex}"
        os.mkfifo(fifo, 0o600)
        ours: set[str] = set()
        try:
            fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                ours.update(name for name in names if self._claimed(fifo, name))
                yield ours
            finally:
                for name in ours:
                    self._unlink(name)
                os.close(fd)  # those who wait wake up
        finally:
            self._unlink(fifo.name)

    def wait(self, names: Iterable[str], timeout_s: float) -> None:
        """Until nobody has a claim on these names, or the time is over."""
        deadline = time.monotonic() + timeout_s
        waiting: dict[int, int] = {}  # inode of a FIFO -> our end
        poll = select.poll()
        try:
            for name in names:
                fd = self._other_end(name)
                if fd is None:
                    continue
                inode = os.fstat(fd).st_ino
                if inode in waiting:
                    os.close(fd)
                    continue
                waiting[inode] = fd
                poll.register(fd, 0)  # errors are always reported
            open_ends = set(waiting.values())
            while open_ends and (left := deadline - time.monotonic()) > 0:
                for fd, _ in poll.poll(left * 1000):
                    poll.unregister(fd)
                    open_ends.discard(fd)
        finally:
            for fd in waiting.values():
                os.close(fd)

    def clean(self) -> None:
        """Delete the claims of processes that are gone."""
        with contextlib.suppress(OSError):
            for claim in list(self._folder.iterdir()):
                # A FIFO is made before it can be opened.
                fresh = time.time() - claim.stat().st_mtime < _FRESH_S
                if not (fresh and claim.name.startswith(_FIFO)):
                    self._unlink_stale(claim.name)

    def _claimed(self, fifo: Path, name: str) -> bool:
        for _ in range(2):
            try:
                os.link(fifo, self._folder / name)
            except FileExistsError:
                if not self._unlink_stale(name):
                    return False
            else:
                return True
        return False

    def _unlink_stale(self, name: str) -> bool:
        """Delete a claim that nobody holds open; whether there is none now."""
        fd = self._other_end(name)
        if fd is not None:
            os.close(fd)
            return False
        self._unlink(name)
        return True

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):  # another process was first
            (self._folder / name).unlink()

    def _other_end(self, name: str) -> int | None:
        """The writing end of a claim, None where it has no reader, is not there, or is no claim."""
        try:
            fd = os.open(self._folder / name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return fd
        os.close(fd)  # a plain file would seem to be held for ever
        return None
