"""The node's cache in one process: found again or not, never wrong, never above its limit."""

import errno
import os
import random
import resource
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from loader.metrics import LoaderMetrics
from loader.storage.cache_folder import ENTRIES, FLIGHTS, TEMPORARY, cache_folder
from loader.storage.node_cache import NodeCache, entry_name
from loader.storage.room import disk_bytes

LIMIT = 1 << 20


def _cache(folder: Path, limit: int = LIMIT, wait_s: float = 10.0) -> NodeCache:
    return NodeCache(folder, limit, wait_s=wait_s, metrics=LoaderMetrics())


def _payload(number: int, nbytes: int = 10_000) -> bytes:
    return random.Random(number).randbytes(nbytes)


def _name(number: int) -> str:
    return entry_name("test", str(number))


def _found(cache: NodeCache, number: int) -> bytes:
    return bytes(cache.get(_name(number)) or b"")


def _files(folder: Path) -> list[Path]:
    """Entries, least recently used first."""
    found = [path for path in (cache_folder(folder) / ENTRIES).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _held(folder: Path) -> int:
    return sum(disk_bytes(path.stat().st_size) for path in _files(folder))


def _used_long_ago(folder: Path, seconds: float = 1000.0) -> None:
    """Let time pass for everything that is cached."""
    for path in _files(folder):
        before = path.stat().st_mtime - seconds
        os.utime(path, (before, before))


class TestFound:
    def test_what_was_put_is_found_by_every_handle(self, tmp_path: Path) -> None:
        first, second = _cache(tmp_path), _cache(tmp_path)
        assert first.get(_name(1)) is None
        first.put(_name(1), _payload(1))
        for cache in (first, second, _cache(tmp_path)):
            found = cache.get(_name(1))
            assert found is not None
            assert bytes(found) == _payload(1)

    def test_names_tell_their_parts_apart(self) -> None:
        names = [
            entry_name(*parts)
            for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [b"abc", "", ""])
        ]
        assert len(set(names)) == len(names)

    def test_a_damaged_entry_is_dropped_counted_and_put_anew(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path)
        for cut in (slice(0, -1), slice(0, 0), slice(1, None)):
            cache.put(_name(1), _payload(1))
            (file,) = _files(tmp_path)
            file.write_bytes(file.read_bytes()[cut])
            assert cache.get(_name(1)) is None
            assert not _files(tmp_path)
        assert cache._metrics.counts["cache_damaged"] == 3
        cache.put(_name(1), _payload(1))
        assert _found(cache, 1) == _payload(1)


class TestLimit:
    def test_the_least_recently_used_go_first(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path, limit=20 * disk_bytes(10_100))
        for number in range(18):
            cache.put(_name(number), _payload(number))
            _used_long_ago(tmp_path)
        assert cache.get(_name(0)) is not None  # a use is noted when the last one is old
        for number in range(18, 30):
            cache.put(_name(number), _payload(number))
        kept = [number for number in range(30) if cache.get(_name(number)) is not None]
        assert 0 in kept
        assert kept == [0, *range(30 - len(kept) + 1, 30)]

    def test_it_is_never_above_the_limit_and_mostly_full(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path)
        rng = random.Random(1)
        fullest = 0
        for number in range(200):
            cache.put(_name(number), _payload(number, rng.randrange(30_000)))
            fullest = max(fullest, _held(tmp_path))
            assert _held(tmp_path) <= LIMIT
        assert fullest > LIMIT * 0.8

    def test_what_is_larger_than_the_cache_is_not_kept(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path, limit=50_000)
        cache.put(_name(1), _payload(1))
        cache.put(_name(2), _payload(2, 50_000))
        assert cache.get(_name(1)) is not None
        assert cache.get(_name(2)) is None

    def test_a_smaller_limit_holds_from_the_next_entry_on(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path)
        for number in range(50):
            cache.put(_name(number), _payload(number))
        small = _cache(tmp_path, limit=100_000)
        small.put(_name(100), _payload(100))
        assert _held(tmp_path) <= 100_000

    @pytest.mark.parametrize("damage", ["removed", "torn", "of another boot", "too high"])
    def test_the_sum_is_right_again_after_it_was_lost(self, tmp_path: Path, damage: str) -> None:
        cache = _cache(tmp_path)
        for number in range(60):
            cache.put(_name(number), _payload(number))
        size = cache_folder(tmp_path) / "size"
        content = size.read_bytes()
        if damage == "removed":
            size.unlink()
        elif damage == "torn":
            size.write_bytes(content[:7])
        elif damage == "of another boot":
            size.write_bytes(content[:8] + bytes(8) + content[16:])
        else:
            assert cache._room is not None
            cache._room._count(LIMIT - _held(tmp_path) - 1)
        again = _cache(tmp_path)
        again.put(_name(100), _payload(100))
        assert again.get(_name(100)) is not None
        assert again._room is not None
        counted = again._room.counted_bytes
        assert counted is not None
        # The entry that was being written may count twice.
        assert 0 <= counted - _held(tmp_path) <= disk_bytes(10_100)


class TestForeign:
    def test_files_of_others_stay_and_are_not_counted(self, tmp_path: Path) -> None:
        mine = tmp_path / "thesis.tex"
        mine.write_bytes(b"precious")
        cache = _cache(tmp_path, limit=100_000)
        inside = cache_folder(tmp_path)
        cache.put(_name(0), _payload(0))
        shelf = _files(tmp_path)[0].parent
        others = [inside / "notes", shelf / "notes", shelf / ("g" * 62), inside / ENTRIES / "x"]
        for path in others:
            path.write_bytes(b"x" * 500_000)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        target = elsewhere / ("0" * 62)
        target.write_bytes(b"y" * 500_000)
        link = inside / ENTRIES / "00"
        if not link.exists():
            link.symlink_to(elsewhere)
        (shelf / ("1" * 62)).symlink_to(target)
        for path in [*others, mine, target]:
            os.utime(path, (1, 1))
        for number in range(1, 40):
            cache.put(_name(number), _payload(number))
        assert cache.get(_name(39)) is not None
        for path in [*others, mine, target]:
            assert path.exists(), path

    def test_a_folder_that_is_a_file_is_no_cache(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache_folder(tmp_path).write_bytes(b"mine")
        cache = _cache(tmp_path)
        cache.put(_name(1), _payload(1))
        assert cache.get(_name(1)) is None
        assert cache_folder(tmp_path).read_bytes() == b"mine"
        assert capsys.readouterr().err.count("\n") == 1


class TestTrouble:
    """One warning, and from then on as if there were no cache."""

    def _warned_once(self, capsys: pytest.CaptureFixture[str], reason: str) -> None:
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert reason in lines[0]
        assert "without it" in lines[0]

    def test_a_full_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = _cache(tmp_path)
        cache.put(_name(0), _payload(0))

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("loader.storage.node_cache.os.writev", full)
            for number in range(1, 5):
                cache.put(_name(number), _payload(number))
                assert cache.get(_name(number)) is None
        assert _found(cache, 0) == _payload(0)
        self._warned_once(capsys, "No space left")
        assert not list((cache_folder(tmp_path) / TEMPORARY).iterdir())

    def test_a_disk_that_takes_only_a_part(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = _cache(tmp_path)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        try:
            cache.put(_name(0), _payload(0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert cache.get(_name(0)) is None
        assert not list((cache_folder(tmp_path) / TEMPORARY).iterdir())
        self._warned_once(capsys, "No space left")

    def test_it_is_used_again_after_a_while(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = _cache(tmp_path)
        cache._trouble(OSError(errno.ENOSPC, "full"))
        cache.put(_name(0), _payload(0))
        assert cache.get(_name(0)) is None
        later = time.monotonic() + 301
        monkeypatch.setattr("loader.storage.node_cache.time.monotonic", lambda: later)
        cache.put(_name(0), _payload(0))
        assert cache.get(_name(0)) is not None

    @pytest.mark.parametrize("moment", ["before", "between"])
    def test_a_folder_that_cannot_be_written(
        self,
        tmp_path: Path,
        moment: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Who runs as root may write anywhere, so the system call is told to refuse."""
        _cache(tmp_path).put(_name(0), _payload(0))
        open_file = os.open

        def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, "Read-only file system")
            return open_file(path, flags, *rest, **more)

        if moment == "before":
            monkeypatch.setattr("os.open", read_only)
        cache = _cache(tmp_path)
        monkeypatch.setattr("os.open", read_only)
        for number in range(1, 4):
            cache.put(_name(number), _payload(number))
        found = dict(_read(cache, [0, 1, 2]))
        assert found == {0: True, 1: False, 2: False}
        self._warned_once(capsys, "Read-only")

    def test_a_folder_that_vanishes(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = _cache(tmp_path)
        cache.put(_name(0), _payload(0))
        shutil.rmtree(cache_folder(tmp_path))
        assert cache.get(_name(0)) is None
        assert dict(_read(cache, [0, 1])) == {0: False, 1: False}
        self._warned_once(capsys, "No such file")
        assert not cache_folder(tmp_path).exists()

    def test_a_disk_that_cannot_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = _cache(tmp_path)
        cache.put(_name(0), _payload(0))

        def broken(*_: Any) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr("loader.storage.node_cache.os.pread", broken)
            assert dict(_read(cache, [0])) == {0: False}
        self._warned_once(capsys, "Input/output error")


def _read(
    cache: NodeCache,
    numbers: Sequence[int],
    load: Callable[[Sequence[int]], None] = lambda _: None,
    **options: Any,
) -> list[tuple[int, bool]]:
    """(number, whether it came from the cache), payloads checked."""

    def loaded(indexes: Sequence[int]) -> list[bytes]:
        load([numbers[index] for index in indexes])
        return [_payload(numbers[index]) for index in indexes]

    found = []
    names = [_name(number) for number in numbers]
    sizes = [10_000] * len(numbers)
    for index, payload, hit in cache.read(names, sizes, loaded, **options):
        assert bytes(payload) == _payload(numbers[index])
        found.append((numbers[index], hit))
    return found


class TestRead:
    def test_what_is_not_there_is_loaded_in_one_call(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path)
        calls: list[Sequence[int]] = []
        assert _read(cache, [3, 1, 2], calls.append) == [(3, False), (1, False), (2, False)]
        assert sorted(_read(cache, [1, 4, 2], calls.append)) == [(1, True), (2, True), (4, False)]
        assert calls == [[3, 1, 2], [4]]

    def test_loads_are_bounded_in_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("loader.storage.node_cache._LOADED_BYTES", 25_000)
        calls: list[Sequence[int]] = []
        _read(_cache(tmp_path), [*range(7)], calls.append)
        assert calls == [[0, 1, 2], [3, 4, 5], [6]]

    def test_renewing_loads_all_and_replaces_what_is_there(self, tmp_path: Path) -> None:
        cache = _cache(tmp_path)
        for number in (0, 1):
            cache.put(_name(number), b"old and wrong")
        calls: list[Sequence[int]] = []
        assert _read(cache, [0, 1], calls.append, renew=True) == [(0, False), (1, False)]
        assert calls == [[0, 1]]
        assert dict(_read(cache, [0, 1])) == {0: True, 1: True}

    def test_what_another_downloads_is_waited_for(self, tmp_path: Path) -> None:
        """The first is stopped within its download; the second must not begin one."""
        first, second = _cache(tmp_path), _cache(tmp_path)
        first.put(_name(9), b"")  # while a new folder is counted, others keep nothing
        begun, go_on = threading.Event(), threading.Event()
        calls: list[tuple[str, list[int]]] = []

        def slow(numbers: Sequence[int]) -> None:
            calls.append(("first", list(numbers)))
            begun.set()
            assert go_on.wait(20)

        def quick(numbers: Sequence[int]) -> None:
            calls.append(("second", list(numbers)))
            go_on.set()  # what is not claimed is loaded before it waits for the rest

        thread = threading.Thread(target=_read, args=(first, [0, 1], slow))
        thread.start()
        assert begun.wait(20)
        found = dict(_read(second, [0, 1, 2], quick))
        thread.join()
        assert calls == [("first", [0, 1]), ("second", [2])]
        assert found == {0: True, 1: True, 2: False}
        assert not list((cache_folder(tmp_path) / FLIGHTS).iterdir())

    def test_what_another_has_put_just_before_the_claim_is_not_downloaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache, other = _cache(tmp_path), _cache(tmp_path)
        claim = cache._flights.claim

        def late(names: Sequence[str]) -> Any:
            other.put(_name(0), _payload(0))
            return claim(names)

        monkeypatch.setattr(cache._flights, "claim", late)
        calls: list[Sequence[int]] = []
        assert sorted(_read(cache, [0, 1], calls.append)) == [(0, True), (1, False)]
        assert calls == [[1]]

    def test_the_wait_for_another_is_bounded(self, tmp_path: Path) -> None:
        first, second = _cache(tmp_path), _cache(tmp_path, wait_s=0.01)
        begun, go_on = threading.Event(), threading.Event()

        def stuck(_: Sequence[int]) -> None:
            begun.set()
            assert go_on.wait(20)

        thread = threading.Thread(target=_read, args=(first, [0], stuck))
        thread.start()
        assert begun.wait(20)
        assert _read(second, [0]) == [(0, False)]
        go_on.set()
        thread.join()

    def test_who_fails_lets_the_others_load(self, tmp_path: Path) -> None:
        first, second = _cache(tmp_path), _cache(tmp_path, wait_s=20)
        begun, fail = threading.Event(), threading.Event()

        def failing(_: Sequence[int]) -> None:
            begun.set()
            assert fail.wait(20)
            raise ValueError("the store is gone")

        def first_read() -> None:
            with pytest.raises(ValueError, match="the store is gone"):
                _read(first, [0], failing)

        thread = threading.Thread(target=first_read)
        thread.start()
        assert begun.wait(20)
        threading.Timer(0.05, fail.set).start()
        assert _read(second, [0]) == [(0, False)]
        thread.join()
        assert not list((cache_folder(tmp_path) / FLIGHTS).iterdir())


def test_no_descriptor_is_left(tmp_path: Path, open_fds: Callable[[], int]) -> None:
    before = open_fds()
    for number in range(20):
        cache = _cache(tmp_path)
        _read(cache, [number, number + 1])
        del cache
    assert open_fds() == before
