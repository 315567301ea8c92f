"""Packets read with those beside them: what is read, what is held, and what waits for it."""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lake import Lake
from lake.errors import LakeError
from lake.video_runs import RunTable
from loader import PackLoader
from loader.fetch.held_packets import HeldPackets
from loader.fetch.planned_pack import read_window
from packing.plan import Plan
from tests.loader.scenes import digest, scene_lake, scene_plan

GOP = 4
PACKETS = 40
BYTES = 10


@dataclass(eq=False, kw_only=True)
class Camera:
    """Stands in for a CameraStream."""

    runs: RunTable
    run_starts: list[int]
    packet_offsets: NDArray[np.int64]
    address: int
    base_offset: int
    index: None = None


def camera() -> Any:  # a stand-in for a CameraStream
    """A camera of 40 frames in packets of 10 bytes, a key frame every 4."""
    starts = np.arange(PACKETS, dtype=np.int32) // GOP * GOP
    table = RunTable(starts, np.arange(PACKETS, dtype=np.int32), PACKETS)
    return Camera(
        runs=table,
        run_starts=starts.tolist(),
        packet_offsets=np.arange(PACKETS + 1) * BYTES,
        address=7,
        base_offset=1000,
    )


class Planner:
    """Plans packs of one camera and says what each reads, as (first packet, stop packet)."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.held = HeldPackets(limit_bytes)
        self.stream = camera()

    def read(self, frames: Sequence[int], coming: Sequence[int] = ()) -> list[tuple[int, int]]:
        runs = self.stream.runs.runs(frames)
        found = self.held.plan(self.stream, runs, lambda: self.stream.runs.runs(coming))
        assert all(read.has(run) for run, (read, _) in zip(runs, found, strict=True))
        return [self._packets(read) for read, is_new in found if is_new]

    def _packets(self, read: Any) -> tuple[int, int]:
        first = (read.range.offset - self.stream.base_offset) // BYTES
        return first, first + read.range.length // BYTES


def test_what_lies_back_to_back_is_read_at_once_and_not_again() -> None:
    planner = Planner()
    assert planner.read([4, 5, 6, 7], coming=[8, 9, 10, 11, 12, 13]) == [(4, 14)]
    assert planner.held.nbytes == 10 * BYTES
    assert planner.read([8, 9, 10, 11], coming=[12, 13]) == []
    assert planner.read([12, 13]) == []
    assert planner.held.nbytes == 0


def test_also_what_lies_before() -> None:
    planner = Planner()
    assert planner.read([8, 9], coming=[0, 1, 2, 3, 4, 5, 6, 7]) == [(0, 10)]
    assert planner.read([0, 3]) == []
    assert planner.read([4, 7]) == []
    assert planner.held.nbytes == 0


def test_what_lies_apart_is_not() -> None:
    planner = Planner()
    # Frame 7 is in nobody's sight, so the group before ends early.
    assert planner.read([4, 5], coming=[6, 8, 9, 20]) == [(4, 7)]
    assert planner.read([8, 9], coming=[20]) == [(8, 10)]
    assert planner.held.nbytes == 3 * BYTES  # frame 6 is still to come
    assert planner.read([6]) == []
    assert planner.held.nbytes == 0


def test_more_than_was_known_is_read_anew() -> None:
    planner = Planner()
    assert planner.read([0, 1, 2, 3], coming=[4, 5, 6, 7]) == [(0, 8)]
    assert planner.read([4, 5, 6, 7, 8, 9]) == [(4, 10)]
    assert planner.held.nbytes == 0


def test_what_is_held_already_is_not_read_with_others() -> None:
    planner = Planner()
    assert planner.read([0, 1, 2, 3], coming=[4, 5, 6, 7]) == [(0, 8)]
    assert planner.read([8, 9, 10, 11], coming=[4, 5, 6, 7, 12]) == [(8, 13)]


def test_what_has_no_room_is_read_when_its_pack_is() -> None:
    planner = Planner(limit_bytes=9 * BYTES)
    assert planner.read([0, 1, 2, 3], coming=[4, 5, 6, 7]) == [(0, 8)]
    assert planner.read([16, 17, 18, 19], coming=[20, 21]) == [(16, 20)]
    assert planner.read([20, 21]) == [(20, 22)]
    assert planner.held.nbytes == 8 * BYTES
    assert planner.read([4, 5, 6, 7]) == []


def test_what_nobody_expects_any_more_is_forgotten() -> None:
    planner = Planner()
    planner.read([0, 1, 2, 3], coming=[4, 5, 6, 7])
    planner.held.forget(planner.stream)
    assert planner.held.nbytes == 0
    assert planner.read([4, 5]) == [(4, 6)]


def pack_of(planner: Planner, frames: Sequence[int], coming: Sequence[int] = ()) -> Any:
    """Stands in for a PlannedPack."""
    runs = planner.stream.runs.runs(frames)
    found = planner.held.plan(planner.stream, runs, lambda: planner.stream.runs.runs(coming))
    return SimpleNamespace(
        row=None, images=None, signals=None, pictures=None, bad={},
        runs=[(run, read) for run, (read, _) in zip(runs, found, strict=True)],
        reads=[read for read, is_new in found if is_new],
    )  # fmt: skip


def two_packs() -> tuple[Planner, Any, Any]:
    """The second needs what the first has read."""
    planner = Planner()
    return planner, pack_of(planner, [0, 1, 2, 3], [4, 5]), pack_of(planner, [4, 5])


class Store:
    """Gives bytes that tell where they lie, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[int] = []

    def ranges(self, ranges: Sequence[Any]) -> list[bytes]:
        self.asked.append(len(ranges))
        if self.error is not None:
            raise self.error
        return [bytes((r.offset - 1000 + at) % 251 for at in range(r.length)) for r in ranges]


def test_a_later_window_gets_its_own_part() -> None:
    _, first, second = two_packs()
    store: Any = Store()
    (one,) = read_window(store, lambda pack: pack, [first])
    (other,) = read_window(store, lambda pack: pack, [second])
    assert store.asked == [1, 0]
    assert bytes(one.runs[0].data) == bytes(range(40))
    assert bytes(other.runs[0].data) == bytes(range(40, 60))


def test_a_read_that_fails_fails_for_all_who_wait() -> None:
    _, first, second = two_packs()
    failing: Any = Store(LakeError("the store is down"))
    working: Any = Store()
    with pytest.raises(LakeError, match="the store is down"):
        read_window(failing, lambda pack: pack, [first])
    with pytest.raises(LakeError, match="the store is down"):
        read_window(working, lambda pack: pack, [second])


def test_nobody_waits_when_reading_has_ended() -> None:
    planner, _, second = two_packs()
    planner.held.close()
    store: Any = Store()
    with pytest.raises(CancelledError):
        read_window(store, lambda pack: pack, [second])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Plan]:
    lake = scene_lake(tmp_path_factory.mktemp("held") / "robots.lake")
    return lake, scene_plan(lake)


def test_batches_do_not_depend_on_what_is_held(
    scene: tuple[Lake, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, plan = scene

    def batches() -> tuple[list[str], dict[str, int]]:
        with PackLoader(lake, plan, process="inline", framework="numpy") as loader:
            return [digest(batch) for batch in loader], dict(loader.metrics.counts)

    held, counts = batches()
    monkeypatch.setattr("loader.fetch.fetcher._HELD_SHARE", 1 << 40)
    alone, counts_alone = batches()
    assert held == alone
    assert counts["decoded_frames"] == counts_alone["decoded_frames"]
    assert counts["bytes_read"] >= counts["needed_bytes"]
