"""Which packets and frames are lost, and which only looked so."""

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake import CameraVideo
from lake.errors import CorruptDataError, LakeError
from lake.read_video import ByteRange
from lake.video_runs import RunTable, verify_packets
from loader.fetch.bad_bytes import BadBytes, checked, first_lost
from loader.fetch.bad_rows import MOST_REREADS
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedPack, FetchedRun
from loader.fetch.images import ImageTable
from tests.loader.video_kinds import bframe_video

_BASE = 1000
_FRAMES = 24


@functools.cache
def _video() -> CameraVideo:
    """Open groups of pictures with B-frames."""
    return bframe_video(_FRAMES, gop=8)


@functools.cache
def _stream() -> CameraStream:
    return CameraStream(
        episode=3,
        camera=1,
        label="episode e, camera top",
        address=7,
        base_offset=_BASE,
        index=_video().index,
    )


def _pack(frames: Sequence[int], payload: bytes, *, lost: Sequence[int] = ()) -> FetchedPack:
    """A pack whose n-th span shows the n-th of these frames."""
    stream, offsets = _stream(), _stream().packet_offsets
    numbers = np.arange(len(frames), dtype=np.int32)
    zeros = np.zeros(len(frames), np.int32)
    images = ImageTable(
        span=numbers,
        step=zeros,
        camera=zeros,
        frame=np.array(frames, np.int32),
        nth=zeros,
        stream=zeros,
        streams=(stream,),
    )
    runs = tuple(
        FetchedRun(
            stream=stream,
            index=stream.index,
            run=run,
            data=payload[offsets[run.first_packet] : offsets[run.stop_packet]],
        )
        for run in stream.runs.runs(frames)
    )
    row: Any = SimpleNamespace(span_id=numbers + 100)
    nothing: Any = None
    return FetchedPack(
        row=row,
        images=images,
        signals=nothing,
        pictures=nothing,
        runs=runs,
        lost=tuple((stream, packet) for packet in lost),
    )


class _Tiers:
    """What `checked` asks of tiers: `read` gives the payload of the n-th further read."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.reads = 0
        self._read = read

    def ranges(self, ranges: Sequence[ByteRange], *, past_caches: bool) -> list[bytes]:
        assert past_caches
        payload = self._read(self.reads)
        self.reads += 1
        assert all(wanted.address == 7 for wanted in ranges)
        starts = [wanted.offset - _BASE for wanted in ranges]
        return [
            payload[start : start + wanted.length]
            for start, wanted in zip(starts, ranges, strict=True)
        ]


def _checked(pack: FetchedPack, tiers: _Tiers) -> FetchedPack:
    this: Any = tiers
    return checked(this, pack)


def _flipped(packets: Sequence[int], mask: int = 1) -> bytes:
    payload = bytearray(_video().payload)
    for packet in packets:
        payload[_stream().packet_offsets[packet]] ^= mask
    return bytes(payload)


def _table(starts: Sequence[int], packets: Sequence[int]) -> RunTable:
    return RunTable(np.array(starts, np.int32), np.array(packets, np.int32), len(starts))


def _payloads(pack: FetchedPack) -> list[bytes]:
    return [bytes(run.data) for run in pack.runs]


@given(st.data())
def test_a_frame_is_lost_with_any_packet_of_its_shortest_run(data: st.DataObject) -> None:
    packets = [data.draw(st.integers(-1, 30)) for _ in range(data.draw(st.integers(1, 20)))]
    starts = [data.draw(st.integers(0, last)) if last >= 0 else -1 for last in packets]
    lost = data.draw(st.sets(st.integers(0, 31), min_size=1))
    runs = [
        range(start, last + 1) if last >= 0 else range(0)
        for start, last in zip(starts, packets, strict=True)
    ]
    expected = [min(lost & set(run), default=-1) for run in runs]
    assert first_lost(_table(starts, packets), lost).tolist() == expected


@given(
    st.lists(st.integers(0, _FRAMES - 1), min_size=1, max_size=9),
    st.sets(st.integers(0, _FRAMES - 1), max_size=3),
)
def test_what_is_left_to_decode_is_all_that_is_sound(frames: list[int], packets: set[int]) -> None:
    stream = _stream()
    payload = _flipped(sorted(packets))
    pack = _pack(frames, payload)
    read = {
        packet for run in pack.runs for packet in range(run.run.first_packet, run.run.stop_packet)
    }
    found = _checked(pack, _Tiers(lambda _: payload))
    assert {packet for _, packet in found.lost} == packets & read
    settled = BadBytes(("front", "top")).settled(found)
    lost = first_lost(stream.runs, packets) if packets else np.full(_FRAMES, -1)
    assert {n: damage.reason.split()[2] for n, damage in settled.bad.items()} == {
        n: str(lost[frame]) for n, frame in enumerate(frames) if lost[frame] >= 0
    }
    assert {damage.camera for damage in settled.bad.values()} <= {"top"}
    for run in settled.runs:
        verify_packets(run.index, run.run.first_packet, run.data, run.run.stop_packet)
    decoded = [frame for run in settled.runs for frame in run.run.frames.tolist()]
    assert sorted(decoded) == sorted({frame for frame in frames if lost[frame] < 0})


def test_the_packets_read_for_a_pack_are_remembered_for_frames_kept_from_it() -> None:
    bad_bytes = BadBytes(("front", "top"))
    start = int(_stream().runs.start[13])
    assert not bad_bytes.settled(_pack([13], _flipped([]))).bad
    assert bad_bytes.settled(_pack([2], _flipped([]), lost=[start])).bad == {}
    kept = _pack([13, 2], _flipped([]))
    assert list(bad_bytes.settled(kept).bad) == [0]


def test_a_packet_that_a_further_read_gives_right_is_put_right() -> None:
    frames, wrong = [5, 20], [2, 17]
    pack = _pack(frames, _flipped(wrong))
    sound = _pack(frames, bytes(_video().payload))
    reads = [_flipped(wrong[:1], mask=2), bytes(_video().payload)]
    tiers = _Tiers(lambda number: reads[number])
    found = _checked(pack, tiers)
    assert _payloads(found) == _payloads(sound)
    assert (found.lost, tiers.reads) == ((), 2)


def test_sound_packets_are_not_read_again() -> None:
    pack = _pack([5, 20], bytes(_video().payload))
    tiers = _Tiers(lambda _: b"")
    assert _checked(pack, tiers) is pack
    assert tiers.reads == 0


def test_the_same_wrong_bytes_twice_past_the_caches_are_the_lake_s() -> None:
    tiers = _Tiers(lambda _: _flipped([2], mask=4))  # the cache had others
    assert _checked(_pack([5], _flipped([2], mask=1)), tiers).lost == ((_stream(), 2),)
    assert tiers.reads == 2


def test_bytes_that_differ_with_every_read_are_no_loss_but_an_error() -> None:
    tiers = _Tiers(lambda number: _flipped([2], mask=2 << number))
    with pytest.raises(CorruptDataError, match=r"camera top: video packet 2 .* on the way"):
        _checked(_pack([5], _flipped([2])), tiers)
    assert tiers.reads == MOST_REREADS


def test_a_store_that_fails_is_an_error() -> None:
    def fail(number: int) -> bytes:
        raise LakeError(f"read {number}: no route to host")

    with pytest.raises(LakeError, match="no route"):
        _checked(_pack([5], _flipped([2])), _Tiers(fail))


def test_a_short_read_is_an_error() -> None:
    short = _pack([5], bytes(_video().payload)[:40])
    with pytest.raises(
        CorruptDataError, match=r"span 100, episode e, camera top: .* bytes, got 40"
    ):
        _checked(short, _Tiers(lambda _: b""))
