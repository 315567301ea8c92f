"""Reading through the node's cache: loaded once, by one of those who ask, and bounded."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loader.storage.cache_folder import FLIGHTS, cache_folder
from tests.loader.storage.cache_files import make_cache, name_of, payload_of, read_through


class TestRead:
    def test_what_is_not_there_is_loaded_in_one_call(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path)
        calls: list[Sequence[int]] = []
        assert read_through(cache, [3, 1, 2], calls.append) == [(3, False), (1, False), (2, False)]
        assert sorted(read_through(cache, [1, 4, 2], calls.append)) == [
            (1, True),
            (2, True),
            (4, False),
        ]
        assert calls == [[3, 1, 2], [4]]

    def test_loads_are_bounded_in_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("loader.storage.node_cache._LOADED_BYTES", 25_000)
        calls: list[Sequence[int]] = []
        read_through(make_cache(tmp_path), [*range(7)], calls.append)
        assert calls == [[0, 1, 2], [3, 4, 5], [6]]

    def test_renewing_loads_all_and_replaces_what_is_there(self, tmp_path: Path) -> None:
        cache = make_cache(tmp_path)
        for number in (0, 1):
            cache.put(name_of(number), b"old and wrong")
        calls: list[Sequence[int]] = []
        assert read_through(cache, [0, 1], calls.append, renew=True) == [(0, False), (1, False)]
        assert calls == [[0, 1]]
        assert dict(read_through(cache, [0, 1])) == {0: True, 1: True}

    def test_what_another_downloads_is_waited_for(self, tmp_path: Path) -> None:
        """The first is stopped within its download; the second must not begin one."""
        first, second = make_cache(tmp_path), make_cache(tmp_path)
        first.put(name_of(9), b"")  # while a new folder is counted, others keep nothing
        begun, go_on = threading.Event(), threading.Event()
        calls: list[tuple[str, list[int]]] = []

        def slow(numbers: Sequence[int]) -> None:
            calls.append(("first", list(numbers)))
            begun.set()
            assert go_on.wait(20)

        def quick(numbers: Sequence[int]) -> None:
            calls.append(("second", list(numbers)))
            go_on.set()  # what is not claimed is loaded before it waits for the rest

        thread = threading.Thread(target=read_through, args=(first, [0, 1], slow))
        thread.start()
        assert begun.wait(20)
        found = dict(read_through(second, [0, 1, 2], quick))
        thread.join()
        assert calls == [("first", [0, 1]), ("second", [2])]
        assert found == {0: True, 1: True, 2: False}
        assert not list((cache_folder(tmp_path) / FLIGHTS).iterdir())

    def test_what_another_has_put_just_before_the_claim_is_not_downloaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache, other = make_cache(tmp_path), make_cache(tmp_path)
        claim = cache._flights.claim

        def late(names: Sequence[str]) -> Any:
            other.put(name_of(0), payload_of(0))
            return claim(names)

        monkeypatch.setattr(cache._flights, "claim", late)
        calls: list[Sequence[int]] = []
        assert sorted(read_through(cache, [0, 1], calls.append)) == [(0, True), (1, False)]
        assert calls == [[1]]

    def test_the_wait_for_another_is_bounded(self, tmp_path: Path) -> None:
        first, second = make_cache(tmp_path), make_cache(tmp_path, wait_s=0.01)
        begun, go_on = threading.Event(), threading.Event()

        def stuck(_: Sequence[int]) -> None:
            begun.set()
            assert go_on.wait(20)

        thread = threading.Thread(target=read_through, args=(first, [0], stuck))
        thread.start()
        assert begun.wait(20)
        assert read_through(second, [0]) == [(0, False)]
        go_on.set()
        thread.join()

    def test_who_fails_lets_the_others_load(self, tmp_path: Path) -> None:
        first, second = make_cache(tmp_path), make_cache(tmp_path, wait_s=20)
        begun, fail = threading.Event(), threading.Event()

        def failing(_: Sequence[int]) -> None:
            begun.set()
            assert fail.wait(20)
            raise ValueError("the store is gone")

        def first_read() -> None:
            with pytest.raises(ValueError, match="the store is gone"):
                read_through(first, [0], failing)

        thread = threading.Thread(target=first_read)
        thread.start()
        assert begun.wait(20)
        threading.Timer(0.05, fail.set).start()
        assert read_through(second, [0]) == [(0, False)]
        thread.join()
        assert not list((cache_folder(tmp_path) / FLIGHTS).iterdir())
