"""Several threads that decode a pack together. That they change no byte: `tests/guarantees`."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lake import Lake
from lake.errors import VideoError
from loader import PackLoader
from loader.decode.decode_frames import PyavFrames
from packing.plan import Plan

_OPTIONS: dict[str, Any] = {"process": "inline", "framework": "numpy", "decode_threads": 2}


def test_two_threads_decode_at_the_same_time(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PyavFrames.decode
    met: dict[int, str] = {}
    both = threading.Barrier(2, timeout=20)

    def decode(self: PyavFrames, *run: Any) -> Iterator[tuple[int, Any]]:
        if id(self) not in met:  # once in each thread, and neither goes on alone
            met[id(self)] = threading.current_thread().name
            both.wait()
        return whole(self, *run)

    monkeypatch.setattr(PyavFrames, "decode", decode)
    with PackLoader(scene, plan, **_OPTIONS) as loader:
        next(iter(loader))
    assert sorted(name.startswith("headrace-decode") for name in met.values()) == [False, True]
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-decode")]


@pytest.mark.parametrize("failing", ["the caller's", "another"])
def test_an_error_of_any_thread_names_the_span_and_ends_all(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    whole, caller = PyavFrames.decode, threading.get_ident()
    failed = threading.Event()

    def decode(self: PyavFrames, *run: Any) -> Iterator[tuple[int, Any]]:
        if (threading.get_ident() == caller) == (failing == "the caller's"):
            failed.set()
            raise VideoError("broken")
        assert failed.wait(20)  # so that the other one gets something to do
        return whole(self, *run)

    monkeypatch.setattr(PyavFrames, "decode", decode)
    with (
        PackLoader(scene, plan, **_OPTIONS) as loader,
        pytest.raises(VideoError, match=r"span \d+, .*camera .*: broken"),
    ):
        next(iter(loader))
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-decode")]
