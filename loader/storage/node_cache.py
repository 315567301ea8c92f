"""A cache on a local disk, shared by all processes of a node: named bytes, found again or not.

Everything lies in the folder `headrace-cache` below the one that the user names, so that eviction
never comes near anything else. An entry is a file that appears whole by a rename and never changes.
Reading one takes no lock. Trouble with the disk makes the cache smaller or useless, never wrong: it
is said once on stderr, and the caller reads from where it would have read without a cache.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from loader.observe.metrics import LoaderMetrics
from loader.storage.cache_folder import ENTRIES, FLIGHTS, TEMPORARY, cache_folder
from loader.storage.claims import Claims
from loader.storage.entry import HEAD_BYTES, entry_head, entry_payload
from loader.storage.room import Room, clean_temporary
from loader.storage.settings import StorageSettings

_USED_S: Final = 60.0  # a use is noted when the last note is older
_PAUSE_S: Final = 300.0  # after trouble with the disk
_LOADED_BYTES: Final = 32 << 20
_LARGEST_BYTES: Final = 1 << 30  # of an entry: what one system call surely reads and writes


def entry_name(*parts: bytes | str) -> str:
    """The name of what these parts identify: 64 hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass
class CacheCounts:
    """How much came from a cache, in one call.

    Attributes:
        hits, misses: entries that were there, and that were not.
        nbytes: wanted bytes of those that were.
    """

    hits: int = 0
    misses: int = 0
    nbytes: int = 0

    def add(self, hit: bool, nbytes: int) -> None:  # noqa: FBT001 - what `NodeCache.read` yields
        """Count an entry."""
        self.hits += hit
        self.misses += not hit
        self.nbytes += nbytes if hit else 0

    def count_in(self, metrics: LoaderMetrics) -> None:
        """Add to the counts of a loader."""
        metrics.add(cache_hits=self.hits, cache_misses=self.misses, cache_bytes=self.nbytes)


class NodeCache:
    """Entries of one cache folder; safe to use from several threads and processes.

    Args:
        cache_dir: on a local disk; made where it is not there.
        limit_bytes: what its files may take.
        wait_s: for which to wait for another process that downloads the same.
        metrics: where damaged entries are counted.
    """

    def __init__(
        self, cache_dir: str | Path, limit_bytes: int, *, wait_s: float, metrics: LoaderMetrics
    ) -> None:
        self._folder = cache_folder(cache_dir)
        self._metrics = metrics
        self._entries = f"{self._folder}/{ENTRIES}"
        self._wait_s = wait_s
        self._numbers = itertools.count()
        self._warned = False
        self._paused_until = 0.0
        self._room: Room | None = None
        self._flights = Claims(self._folder / FLIGHTS)
        try:
            for name in (ENTRIES, TEMPORARY, FLIGHTS):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
            self._room = Room(self._folder, limit_bytes)
            for _ in clean_temporary(self._folder / TEMPORARY):
                pass
            self._flights.clean()
        except OSError as error:
            self._trouble(error)

    @classmethod
    def of(cls, settings: StorageSettings, metrics: LoaderMetrics) -> Self | None:
        """The cache that a loader was told to use, if any."""
        if settings.cache_dir is None:
            return None
        wait_s = settings.request_timeout_s
        return cls(settings.cache_dir, settings.cache_bytes, wait_s=wait_s, metrics=metrics)

    def get(self, name: str) -> memoryview | None:
        """The payload of an entry; None where there is none, or it is damaged and was dropped."""
        path = self._path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._trouble(error)
            return None
        try:
            found = os.fstat(fd)
            file = os.pread(fd, found.st_size, 0)
            if time.time() - found.st_mtime > _USED_S:
                with contextlib.suppress(OSError):  # such as of a disk that is read-only
                    os.utime(fd)
        except OSError as error:
            self._trouble(error)
            return None
        finally:
            os.close(fd)
        payload = entry_payload(name, file)
        if payload is None:
            self._drop(path, len(file))
        return payload

    def put(self, name: str, payload: bytes | memoryview) -> None:
        """Keep a payload, if there is room; replaces an entry of this name."""
        too_large = len(payload) > _LARGEST_BYTES
        if self._room is None or too_large or time.monotonic() < self._paused_until:
            return
        temporary = self._folder / TEMPORARY / f"{os.getpid()}-{next(self._numbers)}-{name[:16]}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600)
            try:
                self._publish(fd, temporary, name, payload, self._room)
            finally:
                with contextlib.suppress(OSError):  # it was renamed, as a rule
                    temporary.unlink()
                os.close(fd)
        except OSError as error:
            self._trouble(error)

    def read(
        self,
        names: Sequence[str],
        sizes: Sequence[int],
        load: Callable[[Sequence[int]], Sequence[bytes | memoryview]],
        *,
        renew: bool = False,
    ) -> Iterator[tuple[int, bytes | memoryview, bool]]:
        """Payloads of entries, loaded and kept where they are not there.

        What other processes of the node are loading at this moment is waited for.

        Args:
            names: of the entries, without repeats.
            sizes: of the payloads, roughly, to bound what is held at once.
            load: payloads of the entries with these indexes, in their order.
            renew: load all of them, whatever is cached.

        Yields:
            Index of the entry, its payload, and whether it came from the cache, in any order.
        """
        left = list(range(len(names)))
        if renew:
            yield from self._loaded(left, names, sizes, load)
            return
        yield from self._found(left, names)
        if not left:
            return
        with self._claimed([names[number] for number in left]) as ours:
            mine = [number for number in left if names[number] in ours]
            left = [number for number in left if names[number] not in ours]
            yield from self._found(mine, names)  # who had the claim before us may have put it
            yield from self._loaded(mine, names, sizes, load)
        if left:
            self._flights.wait([names[number] for number in left], self._wait_s)
            yield from self._found(left, names)
            yield from self._loaded(left, names, sizes, load)

    def _found(
        self, numbers: list[int], names: Sequence[str]
    ) -> Iterator[tuple[int, memoryview, bool]]:
        """What is there; these numbers leave the list."""
        missing = []
        for number in numbers:
            if (payload := self.get(names[number])) is None:
                missing.append(number)
            else:
                yield number, payload, True
        numbers[:] = missing

    def _loaded(
        self,
        numbers: Sequence[int],
        names: Sequence[str],
        sizes: Sequence[int],
        load: Callable[[Sequence[int]], Sequence[bytes | memoryview]],
    ) -> Iterator[tuple[int, bytes | memoryview, bool]]:
        """Load a bounded number of bytes at a time."""
        at = 0
        while at < len(numbers):
            stop, held = at, 0
            while stop < len(numbers) and (stop == at or held < _LOADED_BYTES):
                held += sizes[numbers[stop]]
                stop += 1
            for number, payload in zip(numbers[at:stop], load(numbers[at:stop]), strict=True):
                self.put(names[number], payload)
                yield number, payload, False
            at = stop

    @contextlib.contextmanager
    def _claimed(self, names: Sequence[str]) -> Iterator[set[str]]:
        """The names that are ours to load; all of them where claims cannot be made.

        Some file systems have no FIFOs or no hard links. They make a good cache all the same, only
        that processes may download the same at the same time.
        """
        with contextlib.ExitStack() as stack:
            ours = set(names)
            with contextlib.suppress(OSError):
                ours = stack.enter_context(self._flights.claim(names))
            yield ours

    def _publish(
        self, fd: int, temporary: Path, name: str, payload: bytes | memoryview, room: Room
    ) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process takes the file for a dead one's, and deletes it
        if not os.fstat(fd).st_nlink:
            return  # another process did so
        nbytes = HEAD_BYTES + len(payload)
        if os.writev(fd, [entry_head(name, payload), payload]) != nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not room.take(nbytes):
            return
        path = Path(self._path(name))
        try:
            try:
                temporary.rename(path)
            except FileNotFoundError:  # the first of its shelf
                path.parent.mkdir(exist_ok=True)
                temporary.rename(path)
        except OSError:
            room.give(nbytes)
            raise

    def _drop(self, path: str, nbytes: int) -> None:
        try:
            Path(path).unlink()
            if self._room is not None:
                self._room.give(nbytes)
        except FileNotFoundError:
            return  # another thread or process was first
        except OSError as error:
            self._trouble(error)
        self._metrics.add(cache_damaged=1)

    def _path(self, name: str) -> str:
        return f"{self._entries}/{name[:2]}/{name[2:]}"

    def _trouble(self, error: OSError) -> None:
        """Write nothing for a while, and say so the first time."""
        self._paused_until = time.monotonic() + _PAUSE_S
        if self._warned:
            return
        self._warned = True
        print(
            f"headrace: the cache {self._folder} cannot be used ({error.strerror}); reading from"
            " the lake without it",
            file=sys.stderr,
        )
