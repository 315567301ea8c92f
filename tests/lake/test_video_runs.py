"""Runs hold the fewest packets that give the wanted frames."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import CorruptDataError, VideoError
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun, damaged_packets, decode_runs, verify_packets
from tests.lake.video_clips import steps


def _index(frames: list[int], keys: list[int], pts: list[int] | None = None) -> VideoIndex:
    """An index whose packets, in decode order, show `frames`; packet n holds n + 1 bytes of n."""
    count = len(frames)
    packets = [bytes([number] * (number + 1)) for number in range(count)]
    return VideoIndex(
        codec="h264",
        width=2,
        height=2,
        pix_fmt="yuv420p",
        time_base=(1, 30),
        packet_size=np.array([len(packet) for packet in packets], np.int32),
        packet_frame=np.array(frames, np.int32),
        packet_pts=np.array(frames if pts is None else pts, np.int64),
        packet_checksum=np.array([xxhash.xxh3_64_intdigest(p) for p in packets], np.uint64),
        packet_key=np.isin(np.arange(count), keys),
        step_to_frame=steps(0),
    )


def _payload(index: VideoIndex) -> bytes:
    return b"".join(bytes([number] * size) for number, size in enumerate(index.packet_size))


def _spans(runs: list[DecodeRun]) -> list[tuple[int, int, list[int]]]:
    return [(run.first_packet, run.stop_packet, run.frames.tolist()) for run in runs]


# I0 P3 B1 B2 | open GOP: I6 B4 B5 P9 B7 B8 | closed GOP: I10 P11
_OPEN = _index([0, 3, 1, 2, 6, 4, 5, 9, 7, 8, 10, 11], [0, 4, 10])


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([], []),
        ([0], [(0, 1, [0])]),
        ([2], [(0, 4, [2])]),
        ([6], [(4, 5, [6])]),
        ([4], [(0, 6, [4])]),  # shown before its key: one key earlier
        ([4, 6], [(0, 6, [4, 6])]),
        ([8], [(4, 10, [8])]),
        ([10], [(10, 11, [10])]),
        ([10, 0], [(0, 1, [0]), (10, 11, [10])]),
        ([11, 8, 8, 11], [(4, 12, [8, 11])]),  # runs that touch are one
        ([3, 6], [(0, 2, [3]), (4, 5, [6])]),
    ],
)
def test_runs(frames: list[int], expected: list[tuple[int, int, list[int]]]) -> None:
    assert _spans(decode_runs(_OPEN, frames)) == expected


def test_a_key_shown_after_the_episode_is_no_start_for_what_is_shown_inside() -> None:
    # The key of the last two frames is shown after the cut, so its ordinal is negative.
    index = _index([0, 1, -1, 2, 3], [0, 2], pts=[0, 1, 4, 2, 3])
    assert _spans(decode_runs(index, [3])) == [(0, 5, [3])]


@st.composite
def _streams(draw: st.DrawFn) -> VideoIndex:
    """Streams of GOPs whose pictures are reordered by up to three, preroll included."""
    frames: list[int] = []
    keys: list[int] = []
    shown = 0
    for gop in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 8))
        leading = draw(st.integers(0, min(3, length - 1))) if gop else 0
        keys.append(len(frames))
        order = [shown + leading, *range(shown, shown + leading)]
        rest = list(range(shown + leading + 1, shown + length))
        while rest:
            ahead = draw(st.integers(0, min(3, len(rest) - 1)))
            order += [rest[ahead], *rest[:ahead]]
            rest = rest[ahead + 1 :]
        frames += order
        shown += length
    preroll = draw(st.integers(0, frames[0]))
    return _index([frame - preroll for frame in frames], keys)


@given(_streams(), st.data())
def test_runs_are_minimal_disjoint_and_complete(index: VideoIndex, data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.integers(0, index.num_frames - 1), max_size=6))
    runs = decode_runs(index, frames)
    needed: set[int] = set()
    for frame in frames:
        packet = index.packet_frame.tolist().index(frame)
        start = max(
            key
            for key in np.flatnonzero(index.packet_key).tolist()
            if key <= packet and (index.packet_pts[key] <= index.packet_pts[packet] or key == 0)
        )
        needed |= set(range(start, packet + 1))
    covered = [packet for run in runs for packet in range(run.first_packet, run.stop_packet)]
    assert covered == sorted(needed)
    assert sorted(frame for run in runs for frame in run.frames.tolist()) == sorted(set(frames))
    for before, after in pairwise(runs):
        assert before.stop_packet < after.first_packet


@pytest.mark.parametrize("frame", [-1, 12, 10**9])
def test_a_frame_the_camera_does_not_have(frame: int) -> None:
    with pytest.raises(VideoError, match=f"frame {frame} is not in this camera, which has 12"):
        decode_runs(_OPEN, [0, frame])


def test_an_empty_run_is_refused() -> None:
    with pytest.raises(VideoError, match="empty decode run"):
        DecodeRun(first_packet=3, stop_packet=3, frames=steps(1))


def test_verify_accepts_what_was_written() -> None:
    payload = _payload(_OPEN)
    verify_packets(_OPEN, 0, payload)
    verify_packets(_OPEN, 4, payload[10:21])


@given(st.integers(0, 77), st.integers(1, 255))
def test_verify_names_the_flipped_packet(position: int, mask: int) -> None:
    payload = bytearray(_payload(_OPEN))
    payload[position] ^= mask
    packet = int(np.searchsorted(_OPEN.packet_offsets(), position, side="right")) - 1
    with pytest.raises(CorruptDataError, match=f"video packet {packet} of 12 "):
        verify_packets(_OPEN, 0, bytes(payload))


@pytest.mark.parametrize("change", [b"x", b"xy"])
def test_verify_refuses_another_length(change: bytes) -> None:
    payload = _payload(_OPEN)
    with pytest.raises(CorruptDataError):
        verify_packets(_OPEN, 0, payload + change)
    with pytest.raises(CorruptDataError):
        verify_packets(_OPEN, 0, payload[: -len(change)])


def test_an_index_without_its_key_is_refused() -> None:
    with pytest.raises(Exception, match="first packet must be a key frame"):
        dataclasses.replace(_OPEN, packet_key=np.zeros(12, np.bool_))


@given(st.integers(0, 11), st.data())
def test_all_damaged_packets_of_a_run_are_named(first: int, data: st.DataObject) -> None:
    stop = data.draw(st.integers(first + 1, 12))
    damaged = data.draw(st.sets(st.integers(first, stop - 1)))
    offsets = _OPEN.packet_offsets()
    payload = bytearray(_payload(_OPEN))
    for packet in damaged:
        payload[data.draw(st.integers(offsets[packet], offsets[packet + 1] - 1))] ^= 1
    run = DecodeRun(first_packet=first, stop_packet=stop, frames=steps(1))
    part = bytes(payload[offsets[first] : offsets[stop]])
    assert damaged_packets(_OPEN, run, part) == sorted(damaged)
    for wrong in (part + b"x", part[:-1]):
        with pytest.raises(CorruptDataError, match="bytes, got"):
            damaged_packets(_OPEN, run, wrong)
