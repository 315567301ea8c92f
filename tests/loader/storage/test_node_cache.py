"""The node's cache in one process: found again or not, never wrong, never above its limit."""

import errno
import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loader.storage.cache_folder import ENTRIES, TEMPORARY, cache_folder
from loader.storage.node_cache import entry_name
from loader.storage.room import disk_bytes
from tests.loader.storage.cache_files import (
    LIMIT,
    entry_files,
    found_in,
    held_bytes,
    make_cache,
    name_of,
    payload_of,
    read_through,
    used_long_ago,
)


class TestFound:
    def test_what_was_put_is_found_by_every_handle(self, tmp_path: Path) -> None:
        first, second = make_cache(tmp_path), make_cache(tmp_path)
        assert first.get(name_of(1)) is None
        first.put(name_of(1), payload_of(1))
        for cache in (first, second, make_cache(tmp_path)):
            found = cache.get(name_of(1))
            assert found is not None
            assert bytes(found) == payload_of(1)

    def test_names_tell_their_parts_apart(self) -> None:
        names = [
            entry_name(*parts)
            for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [b"abc", "", ""])
        ]
        assert len(set(names)) == len(names)

    def test_a_damaged_entry_is_dropped_counted_and_put_anew(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path)
        for cut in (slice(0, -1), slice(0, 0), slice(1, None)):
            cache.put(name_of(1), payload_of(1))
            (file,) = entry_files(tmp_path)
            file.write_bytes(file.read_bytes()[cut])
            assert cache.get(name_of(1)) is None
            assert not entry_files(tmp_path)
        assert cache._metrics.counts["cache_damaged"] == 3
        cache.put(name_of(1), payload_of(1))
        assert found_in(cache, 1) == payload_of(1)


class TestLimit:
    def test_the_least_recently_used_go_first(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path, limit=20 * disk_bytes(10_100))
        for number in range(18):
            cache.put(name_of(number), payload_of(number))
            used_long_ago(tmp_path)
        assert cache.get(name_of(0)) is not None  # a use is noted when the last one is old
        for number in range(18, 30):
            cache.put(name_of(number), payload_of(number))
        kept = [number for number in range(30) if cache.get(name_of(number)) is not None]
        assert 0 in kept
        assert kept == [0, *range(30 - len(kept) + 1, 30)]

    def test_it_is_never_above_the_limit_and_mostly_full(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path)
        rng = random.Random(1)
        fullest = 0
        for number in range(200):
            cache.put(name_of(number), payload_of(number, rng.randrange(30_000)))
            fullest = max(fullest, held_bytes(tmp_path))
            assert held_bytes(tmp_path) <= LIMIT
        assert fullest > LIMIT * 0.8

    def test_what_is_larger_than_the_cache_is_not_kept(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path, limit=50_000)
        cache.put(name_of(1), payload_of(1))
        cache.put(name_of(2), payload_of(2, 50_000))
        assert cache.get(name_of(1)) is not None
        assert cache.get(name_of(2)) is None

    def test_a_smaller_limit_holds_from_the_next_entry_on(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path)
        for number in range(50):
            cache.put(name_of(number), payload_of(number))
        small = make_cache(tmp_path, limit=100_000)
        small.put(name_of(100), payload_of(100))
        assert held_bytes(tmp_path) <= 100_000

    @pytest.mark.parametrize("damage", ["removed", "torn", "of another boot", "too high"])
    def test_the_sum_is_right_again_after_it_was_lost(self, tmp_path: Path, damage: str) -> None:
        cache = make_cache(tmp_path)
        for number in range(60):
            cache.put(name_of(number), payload_of(number))
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
            cache._room._count(LIMIT - held_bytes(tmp_path) - 1)
        again = make_cache(tmp_path)
        again.put(name_of(100), payload_of(100))
        assert again.get(name_of(100)) is not None
        assert again._room is not None
        counted = again._room.counted_bytes
        assert counted is not None
        # The entry that was being written may count twice.
        assert 0 <= counted - held_bytes(tmp_path) <= disk_bytes(10_100)


class TestForeign:
    def test_files_of_others_stay_and_are_not_counted(self, tmp_path: Path) -> None:
        mine = tmp_path / "thesis.tex"
        mine.write_bytes(b"precious")
        cache = make_cache(tmp_path, limit=100_000)
        inside = cache_folder(tmp_path)
        cache.put(name_of(0), payload_of(0))
        shelf = entry_files(tmp_path)[0].parent
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
            cache.put(name_of(number), payload_of(number))
        assert cache.get(name_of(39)) is not None
        for path in [*others, mine, target]:
            assert path.exists(), path

    def test_a_folder_that_is_a_file_is_no_cache(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache_folder(tmp_path).write_bytes(b"mine")
        cache = make_cache(tmp_path)
        cache.put(name_of(1), payload_of(1))
        assert cache.get(name_of(1)) is None
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
        cache = make_cache(tmp_path)
        cache.put(name_of(0), payload_of(0))

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("loader.storage.node_cache.os.writev", full)
            for number in range(1, 5):
                cache.put(name_of(number), payload_of(number))
                assert cache.get(name_of(number)) is None
        assert found_in(cache, 0) == payload_of(0)
        self._warned_once(capsys, "No space left")
        assert not list((cache_folder(tmp_path) / TEMPORARY).iterdir())

    def test_a_disk_that_takes_only_a_part(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = make_cache(tmp_path)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        try:
            cache.put(name_of(0), payload_of(0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert cache.get(name_of(0)) is None
        assert not list((cache_folder(tmp_path) / TEMPORARY).iterdir())
        self._warned_once(capsys, "No space left")

    def test_it_is_used_again_after_a_while(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = make_cache(tmp_path)
        cache._trouble(OSError(errno.ENOSPC, "full"))
        cache.put(name_of(0), payload_of(0))
        assert cache.get(name_of(0)) is None
        later = time.monotonic() + 301
        monkeypatch.setattr("loader.storage.node_cache.time.monotonic", lambda: later)
        cache.put(name_of(0), payload_of(0))
        assert cache.get(name_of(0)) is not None

    @pytest.mark.parametrize("moment", ["before", "between"])
    def test_a_folder_that_cannot_be_written(
        self,
        tmp_path: Path,
        moment: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Who runs as root may write anywhere, so the system call is told to refuse."""
        make_cache(tmp_path).put(name_of(0), payload_of(0))
        open_file = os.open

        def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, "Read-only file system")
            return open_file(path, flags, *rest, **more)

        if moment == "before":
            monkeypatch.setattr("os.open", read_only)
        cache = make_cache(tmp_path)
        monkeypatch.setattr("os.open", read_only)
        for number in range(1, 4):
            cache.put(name_of(number), payload_of(number))
        found = dict(read_through(cache, [0, 1, 2]))
        assert found == {0: True, 1: False, 2: False}
        self._warned_once(capsys, "Read-only")

    def test_a_folder_that_vanishes(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = make_cache(tmp_path)
        cache.put(name_of(0), payload_of(0))
        shutil.rmtree(cache_folder(tmp_path))
        assert cache.get(name_of(0)) is None
        assert dict(read_through(cache, [0, 1])) == {0: False, 1: False}
        self._warned_once(capsys, "No such file")
        assert not cache_folder(tmp_path).exists()

    def test_a_disk_that_cannot_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache = make_cache(tmp_path)
        cache.put(name_of(0), payload_of(0))

        def broken(*_: Any) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr("loader.storage.node_cache.os.pread", broken)
            assert dict(read_through(cache, [0])) == {0: False}
        self._warned_once(capsys, "Input/output error")


def test_no_descriptor_is_left(tmp_path: Path, open_fds: Callable[[], int]) -> None:
    before = open_fds()
    for number in range(20):
        cache = make_cache(tmp_path)
        read_through(cache, [number, number + 1])
        del cache
    assert open_fds() <= before
