"""Frames shared between materialised packs: each is there when it is shown, and gone after."""

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from lake import Lake
from lake.errors import LakeError
from loader.assembly.shape import BatchShape
from loader.cursor import Cursor
from loader.fetch.fetcher import WINDOW_PACKS, FetchLimits
from loader.fetch.plan_rows import PlanRows
from loader.materialized import fetch as materialized_fetch
from loader.materialized.fetch import MaterializedFetcher
from loader.materialized.materialize import materialize
from loader.materialized.pack_set import MaterializedSet
from loader.observe.metrics import LoaderMetrics
from loader.storage.pack_tiers import PackTiers
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.window_spans import WindowSpans
from tests.loader import scenes

FRAME_BYTES = 48 * 64 * 3 // 2  # of the larger camera


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(tmp_path_factory.mktemp("reuse"))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    """Many small packs whose runs stay open for long."""
    made = scenes.scene_plan(
        lake, spans=WindowSpans(horizon=3), budget_tokens=128, slots_per_step=1, open_runs=8
    )
    save_plan(lake, made)
    materialize(lake, made, workers=0)
    return made


class Follower:
    """Does what pictures and runs of a pack say, with names in place of pixels."""

    def __init__(self, lake: Lake, plan: Plan, limits: FetchLimits) -> None:
        cursor = Cursor(
            plan_hash=plan.plan_hash,
            num_steps=plan.num_steps,
            slots_per_step=1,
            rank=0,
            world_size=1,
        )
        self.plan, self.cursor, self.known, self.handed = plan, cursor, 0, 0
        packs, metrics = MaterializedSet.open(lake, plan.header, "copy"), LoaderMetrics()
        self.fetcher = MaterializedFetcher(
            PackTiers(packs, StorageSettings(), metrics),
            PlanRows(plan),
            cursor,
            BatchShape.of(plan.header),
            limits,
            metrics,
        )
        self.kept: set[tuple[int, int, int]] = set()
        self.decoded = self.shown = self.most_kept = self.most_held = 0

    def run(self) -> None:
        for pack in self.fetcher.packs(self._blocks()):
            self.handed += 1
            self.most_held = max(self.most_held, self.fetcher._held)
            images = pack.images
            wanted = {
                (stream.episode, stream.camera, frame)
                for stream, frames in images.rows.items()
                for frame in frames
            }
            fresh = set()
            for run in pack.runs:
                where = (run.stream.episode, run.stream.camera)
                fresh |= {(*where, frame) for frame in run.run.frames.tolist()}
                held = run.index.packet_frame[run.run.first_packet : run.run.stop_packet]
                assert set(run.run.frames.tolist()) <= set(held.tolist())
            assert wanted <= self.kept | fresh
            assert not self.kept & fresh
            assert pack.pictures.reused == len(wanted & self.kept)
            self.decoded += len(fresh)
            self.shown += len(wanted)
            for stream, frames in pack.pictures.keep.items():
                added = {(stream.episode, stream.camera, frame) for frame in frames}
                assert added <= fresh
                self.kept |= added
            for stream, frames in pack.pictures.drop.items():
                gone = {(stream.episode, stream.camera, frame) for frame in frames}
                assert gone <= self.kept
                self.kept -= gone
            self.most_kept = max(self.most_kept, len(self.kept))
        assert self.handed == self.plan.packs.num_rows
        assert not self.kept

    def _blocks(self) -> Iterator[range]:
        yield from self.cursor.blocks(0, WINDOW_PACKS)


def _limits(packs: int, frames: int) -> FetchLimits:
    return FetchLimits(packet_bytes=packs, episode_bytes=0, kept_frame_bytes=frames)


def test_groups_are_decoded_once_where_bytes_allow(lake: Lake, plan: Plan) -> None:
    follower = Follower(lake, plan, _limits(1 << 30, 1 << 30))
    follower.run()
    assert follower.decoded < follower.shown
    distinct = len(set(_frames_of(lake, plan)))
    assert follower.decoded < 1.3 * 2 * distinct  # of two epochs


def _frames_of(lake: Lake, plan: Plan) -> Iterator[tuple[int, int, int]]:
    fetcher = Follower(lake, plan, _limits(1 << 30, 0)).fetcher
    cursor = Follower(lake, plan, _limits(1 << 30, 0)).cursor
    for pack in fetcher.packs(cursor.blocks(0, WINDOW_PACKS)):
        for stream, frames in pack.images.rows.items():
            for frame in frames:
                yield stream.episode, stream.camera, frame


@pytest.mark.parametrize("frames", [0, 1, 7, 40])
def test_kept_frames_stay_within_their_bytes(lake: Lake, plan: Plan, frames: int) -> None:
    follower = Follower(lake, plan, _limits(1 << 30, frames * FRAME_BYTES))
    follower.run()
    smallest = 32 * 48 * 3 // 2
    assert follower.most_kept * smallest <= frames * FRAME_BYTES
    if not frames:
        assert follower.decoded == follower.shown


def test_without_bytes_each_pack_is_read_alone(lake: Lake, plan: Plan) -> None:
    follower = Follower(lake, plan, _limits(1, 1 << 30))
    follower.run()
    assert follower.decoded == follower.shown
    assert follower.most_kept == 0


@pytest.mark.parametrize("kilobytes", [1, 20, 120])
def test_packs_that_are_here_stay_within_their_bytes(
    lake: Lake, plan: Plan, kilobytes: int
) -> None:
    sizes = MaterializedSet.open(lake, plan.header, "copy").dataset.to_table(columns=["data_bytes"])
    largest = max(sizes["data_bytes"].to_pylist())
    follower = Follower(lake, plan, _limits(kilobytes << 10, 1 << 30))
    follower.run()
    assert follower.most_held < (kilobytes << 10) + largest
    assert (follower.decoded < follower.shown) == (kilobytes == 120)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_sizes_read_in_parts_change_nothing(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    whole = Follower(lake, plan, _limits(1 << 30, 1 << 30))
    whole.run()
    monkeypatch.setattr(materialized_fetch, "_BLOCKS_AHEAD", blocks)
    parts = Follower(lake, plan, _limits(1 << 30, 1 << 30))
    parts.run()
    assert (parts.decoded, parts.most_kept) == (whole.decoded, whole.most_kept)


@pytest.mark.parametrize("columns", [["data_bytes"], ["pack", "data", "checksum"]])
def test_an_error_comes_behind_all_packs_before_it(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    bad = 3 * WINDOW_PACKS + 2
    take = MaterializedSet.take

    def fail(self: MaterializedSet, packs: Sequence[int], wanted: Sequence[str]) -> pa.Table:
        if bad in packs and list(wanted) == columns:
            raise LakeError("the store is down")
        return take(self, packs, wanted)

    monkeypatch.setattr(MaterializedSet, "take", fail)
    monkeypatch.setattr(materialized_fetch, "_BLOCKS_AHEAD", 1)
    follower = Follower(lake, plan, _limits(1 << 30, 1 << 30))
    with pytest.raises(LakeError, match=f"materialised pack {bad} .*the store is down"):
        follower.run()
    assert follower.handed == 3 * WINDOW_PACKS
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace ")]
