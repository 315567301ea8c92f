"""How much a cache folder holds: counted by all processes of the node, and made room in.

Whoever adds a file first adds its bytes to the sum in the file `size`, under a lock that is held
for three system calls. A process killed in between leaves the sum too high, never too low, and the
next eviction, which looks at all files, puts it right. Where there is no room, what was to be
cached is not: nobody ever waits for an eviction.
"""

import contextlib
import errno
import fcntl
import os
import random
import stat
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from loader.storage.cache_folder import ENTRIES, TEMPORARY, is_entry_name

_SIZE: Final = struct.Struct("<QQQ")  # bytes, the boot they were counted in, XXH3-64 of both
_USES: Final = np.dtype([("use", np.int64), ("size", np.int64)])
_DISK_BLOCK: Final = 4096
_LOCK_S: Final = 1.0  # who holds it longer has been stopped, or hangs with its disk
_LOOK_AGAIN_S: Final = 0.005
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Room:
    """The bytes of one cache folder, shared by all processes that open it.

    Args:
        folder: see `loader.storage.cache_folder`.
        limit_bytes: the sum of all files stays below, but for one that is being written per thread.

    Raises:
        OSError: the folder cannot be written or locked.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._high = limit_bytes - limit_bytes // 64
        self._low = limit_bytes - limit_bytes // 8
        self._boot = xxhash.xxh3_64_intdigest(_boot_id())
        self._size_fd = self._opened(folder / "size")
        self._evict_fd = self._opened(folder / "evict")
        self._size_lock, self._evict_lock = threading.Lock(), threading.Lock()

    def take(self, nbytes: int) -> bool:
        """Count a file of `nbytes` that is about to appear; False where there is no room for it.

        Raises:
            OSError: the folder cannot be written or locked.
        """
        needed = disk_bytes(nbytes)
        if needed > self._limit:
            return False
        if (held := self._count(needed)) is None:
            self.evict(needed)
            held = self._count(needed)
        elif held > self._high:
            self.evict(needed)
        return held is not None

    def give(self, nbytes: int) -> None:
        """Count a file less."""
        with self._size() as counted:
            if counted is not None:
                self._set(max(counted - disk_bytes(nbytes), 0))

    def evict(self, needed: int = 0) -> None:
        """Count all files anew and, where the limit is near, delete the least recently used.

        Does nothing where another thread or process is at it.

        Args:
            needed: bytes that there shall be room for.

        Raises:
            OSError: the folder cannot be written or locked.
        """
        with self._alone() as alone:
            if not alone:
                return
            with self._size() as counted:
                # Until we know better it is full.
                before = self._limit if counted is None else counted
                self._set(before)
            # In this order, a file that is renamed meanwhile is seen at least once.
            held = sum(clean_temporary(self._folder / TEMPORARY))
            uses = np.fromiter(
                ((use, size) for use, size, _ in _entries(self._folder / ENTRIES)), _USES
            )
            held += int(uses["size"].sum())
            if held + needed > self._high and len(uses):
                excess = held + needed - self._low
                held -= self._unlink_until(_last_to_go(uses, excess), excess)
            with self._size() as counted:
                since = 0 if counted is None else counted - before
                self._set(max(held + since, 0))

    @property
    def counted_bytes(self) -> int | None:
        """The sum as it stands, None where it is not known."""
        with self._size() as counted:
            return counted

    def _opened(self, path: Path) -> int:
        """A descriptor that is closed when no thread can use it any more."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, fd)
        return fd

    def _unlink_until(self, last_use: int, nbytes: int) -> int:
        """Delete entries not used since `last_use` until `nbytes` are free; what became free."""
        freed = 0
        for use, size, path in _entries(self._folder / ENTRIES):
            if use <= last_use and freed < nbytes:
                with contextlib.suppress(OSError):  # gone already, or not ours to delete
                    Path(path).unlink()
                    freed += size
        return freed

    def _count(self, needed: int) -> int | None:
        """Add to the sum; None, and nothing is added, where that would exceed the limit."""
        with self._size() as counted:
            if counted is None or counted + needed > self._limit:
                return None
            self._set(counted + needed)
            return counted + needed

    @contextlib.contextmanager
    def _size(self) -> Iterator[int | None]:
        """Hold the sum still, and read it: None where no eviction counted since this boot.

        Raises:
            OSError: it cannot be read or locked, or is locked for too long.
        """
        deadline = time.monotonic() + _LOCK_S
        if not self._size_lock.acquire(timeout=_LOCK_S):
            raise _locked_too_long()
        try:
            self._lock_size(deadline)
            try:
                data = os.pread(self._size_fd, _SIZE.size, 0)
                fields = _SIZE.unpack(data) if len(data) == _SIZE.size else (0, 0, 0)
                sound = fields[1] == self._boot and data == self._packed(fields[0])
                yield fields[0] if sound else None
            finally:
                fcntl.flock(self._size_fd, fcntl.LOCK_UN)
        finally:
            self._size_lock.release()

    def _lock_size(self, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(self._size_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _locked_too_long() from None
                time.sleep(random.random() * _LOOK_AGAIN_S)  # noqa: S311 - no secret
            else:
                return

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether we are the only one that evicts; True lasts until the block ends."""
        if not self._evict_lock.acquire(blocking=False):
            yield False
            return
        try:
            try:
                fcntl.flock(self._evict_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                fcntl.flock(self._evict_fd, fcntl.LOCK_UN)
        finally:
            self._evict_lock.release()

    def _set(self, size: int) -> None:
        os.pwrite(self._size_fd, self._packed(size), 0)

    def _packed(self, size: int) -> bytes:
        both = struct.pack("<QQ", size, self._boot)
        return both + struct.pack("<Q", xxhash.xxh3_64_intdigest(both))


def _locked_too_long() -> OSError:
    return OSError(errno.ETIMEDOUT, f"its size was locked by another process for {_LOCK_S:g} s")


def disk_bytes(nbytes: int) -> int:
    """What a file of this length takes on disk, roughly."""
    return -(-nbytes // _DISK_BLOCK) * _DISK_BLOCK


def clean_temporary(folder: Path) -> Iterator[int]:
    """Delete temporary files of processes that are gone; gives the disk bytes of the others.

    Who writes one holds a lock on it, which the kernel releases however the process ends.
    """
    for entry in _listed(folder):
        with contextlib.suppress(OSError):
            fd = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)  # noqa: PTH108 - a scandir entry
            except BlockingIOError:
                yield disk_bytes(os.fstat(fd).st_size)
            finally:
                os.close(fd)


def _last_to_go(uses: NDArray[Any], nbytes: int) -> int:
    """The use up to which entries hold so many bytes."""
    order = np.argsort(uses["use"])
    freed = np.cumsum(uses["size"][order])
    return int(uses["use"][order[min(int(np.searchsorted(freed, nbytes)), len(order) - 1)]])


def _entries(folder: Path) -> Iterator[tuple[int, int, str]]:
    """(last use in ns, disk bytes, path) of every entry, and of nothing else in the folder."""
    for shelf in _listed(folder):
        if len(shelf.name) != 2 or not shelf.is_dir(follow_symlinks=False):
            continue
        for entry in _listed(shelf.path):
            if not is_entry_name(shelf.name + entry.name):
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:  # deleted by hand meanwhile
                continue
            if stat.S_ISREG(found.st_mode):
                yield found.st_mtime_ns, disk_bytes(found.st_size), entry.path


def _listed(folder: str | Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _boot_id() -> bytes:
    """Tells one run of the machine from another: what a crash left in a file is not believed."""
    try:
        return _BOOT_ID.read_bytes()
    except OSError:
        return b""
