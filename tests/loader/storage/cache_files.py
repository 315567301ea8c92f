"""Entries of a cache folder, as the tests make and see them."""

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loader.observe.metrics import LoaderMetrics
from loader.storage.cache_folder import ENTRIES, cache_folder
from loader.storage.node_cache import NodeCache, entry_name
from loader.storage.room import disk_bytes

LIMIT = 1 << 20


def make_cache(folder: Path, limit: int = LIMIT, wait_s: float = 10.0) -> NodeCache:
    return NodeCache(folder, limit, wait_s=wait_s, metrics=LoaderMetrics())


def payload_of(number: int, nbytes: int = 10_000) -> bytes:
    return random.Random(number).randbytes(nbytes)


def name_of(number: int) -> str:
    return entry_name("test", str(number))


def found_in(cache: NodeCache, number: int) -> bytes:
    return bytes(cache.get(name_of(number)) or b"")


def entry_files(folder: Path) -> list[Path]:
    """Entries, least recently used first."""
    found = [path for path in (cache_folder(folder) / ENTRIES).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def held_bytes(folder: Path) -> int:
    return sum(disk_bytes(path.stat().st_size) for path in entry_files(folder))


def used_long_ago(folder: Path, seconds: float = 1000.0) -> None:
    """Let time pass for everything that is cached."""
    for path in entry_files(folder):
        before = path.stat().st_mtime - seconds
        os.utime(path, (before, before))


def read_through(
    cache: NodeCache,
    numbers: Sequence[int],
    load: Callable[[Sequence[int]], None] = lambda _: None,
    **options: Any,
) -> list[tuple[int, bool]]:
    """(number, whether it came from the cache), payloads checked."""

    def loaded(indexes: Sequence[int]) -> list[bytes]:
        load([numbers[index] for index in indexes])
        return [payload_of(numbers[index]) for index in indexes]

    found = []
    names = [name_of(number) for number in numbers]
    sizes = [10_000] * len(numbers)
    for index, payload, hit in cache.read(names, sizes, loaded, **options):
        assert bytes(payload) == payload_of(numbers[index])
        found.append((numbers[index], hit))
    return found
