"""What is decoded, kept and dropped, replayed against the plan for any look-ahead and bound."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake import Lake, VideoIndex
from loader import PackLoader
from loader.fetch.episodes import CameraStream
from loader.fetch.images import ImageTable
from loader.fetch.reuse import Reuse
from packing.plan import Plan
from packing.window_spans import WindowSpans
from tests.loader.scenes import digest, scene_plan

_FRAMES, _GOP = 12, 3


def _stream(number: int) -> CameraStream:
    key = np.zeros(_FRAMES, np.bool_)
    key[::_GOP] = True
    index = VideoIndex(
        codec="h264",
        width=8,
        height=4,
        pix_fmt="yuv420p",
        time_base=(1, 10),
        packet_size=np.ones(_FRAMES, np.int32),
        packet_frame=np.arange(_FRAMES, dtype=np.int32),
        packet_pts=np.arange(_FRAMES, dtype=np.int64),
        packet_checksum=np.zeros(_FRAMES, np.uint64),
        packet_key=key,
        step_to_frame=np.arange(_FRAMES, dtype=np.int32),
    )
    return CameraStream(
        episode=number, camera=0, label=str(number), address=number, base_offset=0, index=index
    )


_STREAMS = (_stream(0), _stream(1))


def _table(shown: list[tuple[int, int]]) -> ImageTable:
    stream = np.asarray([s for s, _ in shown], np.int32)
    frame = np.asarray([f for _, f in shown], np.int32)
    zeros = np.zeros(len(shown), np.int32)
    return ImageTable(
        span=zeros,
        step=frame,
        camera=zeros,
        frame=frame,
        nth=zeros,
        stream=stream,
        streams=_STREAMS,
    )


Key = tuple[CameraStream, int]


def _keys(frames: Mapping[CameraStream, Iterable[int]]) -> set[Key]:
    return {(stream, frame) for stream, each in frames.items() for frame in each}


_PACKS = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, _FRAMES - 1)), max_size=6), max_size=12
)


@given(packs=_PACKS, look_ahead=st.integers(1, 8), room=st.integers(0, 12))
def test_every_picture_is_decoded_or_kept_and_the_bound_holds(
    packs: list[list[tuple[int, int]]], look_ahead: int, room: int
) -> None:
    size = _STREAMS[0].frame_bytes
    reuse = Reuse(room * size)
    tables = [_table(pack) for pack in packs]
    kept: set[Key] = set()
    entered = 0
    for position, table in enumerate(tables):
        while entered < min(position + look_ahead, len(tables)):
            reuse.enter(tables[entered])
            entered += 1
        pictures = reuse.plan(table)
        decoded, keep, drop = map(_keys, (pictures.decode, pictures.keep, pictures.drop))
        wanted = _keys(table.rows)
        assert wanted <= decoded | kept
        assert not decoded & kept  # nothing that is here is decoded again
        assert pictures.reused == len(wanted & kept)
        later = {key for coming in tables[position + 1 : entered] for key in _keys(coming.rows)}
        assert keep <= decoded & later
        assert decoded <= wanted | keep
        assert drop <= kept
        kept = (kept | keep) - drop
        assert kept <= later  # what no coming pack shows is gone
        assert len(kept) <= room
    assert not kept


@given(packs=_PACKS)
def test_with_room_and_sight_each_group_is_decoded_once(
    packs: list[list[tuple[int, int]]],
) -> None:
    reuse = Reuse(1 << 30)
    tables = [_table(pack) for pack in packs]
    for table in tables:
        reuse.enter(table)
    starts: Counter[tuple[Any, int]] = Counter()
    for table in tables:
        for stream, frames in reuse.plan(table).decode.items():
            starts.update({(stream, stream.run_starts[frame]) for frame in frames})
    assert set(starts.values()) <= {1}


@pytest.fixture(scope="module")
def overlapping(scene: Lake) -> Plan:
    return scene_plan(scene, spans=WindowSpans(horizon=4, history=3), epochs=1, open_runs=4)


def _stream_all(lake: Lake, plan: Plan, buffer_bytes: int) -> tuple[list[str], dict[str, int]]:
    with PackLoader(
        lake, plan, process="inline", framework="numpy", buffer_bytes=buffer_bytes
    ) as loader:
        digests = [digest(batch) for batch in loader]
        return digests, dict(loader.metrics.counts)


def test_any_byte_bound_gives_the_same_batches(scene: Lake, overlapping: Plan) -> None:
    wide, few = _stream_all(scene, overlapping, 1 << 30)
    narrow, many = _stream_all(scene, overlapping, 1 << 20)
    assert wide == narrow
    assert few["decoded_frames"] < many["decoded_frames"]
    assert few["wanted_frames"] == many["wanted_frames"]
