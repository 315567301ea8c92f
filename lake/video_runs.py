"""From wanted frames to the packets that must be read and decoded for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from lake.errors import CorruptDataError, VideoError
from lake.video_index import VideoIndex


@dataclass(frozen=True, kw_only=True)
class DecodeRun:
    """A contiguous range of packets to be decoded in one go.

    Attributes:
        first_packet, stop_packet: the packets [first, stop) of the camera; decoding starts clean at
            the first, and the last holds a wanted frame.
        frames: int32 [W], the wanted display ordinals, ascending.
    """

    first_packet: int
    stop_packet: int
    frames: NDArray[np.int32]

    def __post_init__(self) -> None:
        if not 0 <= self.first_packet < self.stop_packet or not len(self.frames):
            raise VideoError(f"empty decode run [{self.first_packet}, {self.stop_packet})")


@dataclass(frozen=True, eq=False)
class RunTable:
    """Of every frame of a camera, the packets that give it. Keep it where a camera is read often.

    Decoding of a frame starts at the last key packet that is neither decoded nor displayed after
    it, since a decoder drops what is displayed before the key it started at (open GOP).

    Attributes:
        start, packet: int32 [F], for each display ordinal the packet to start at and the packet
            that holds it; -1 where no packet does.
        num_frames: frames of the camera.
    """

    start: NDArray[np.int32]
    packet: NDArray[np.int32]
    num_frames: int

    @classmethod
    def of(cls, index: VideoIndex) -> Self:
        """The table of a camera."""
        shown = np.flatnonzero(index.packet_frame >= 0)
        keys = np.flatnonzero(index.packet_key)
        at = np.searchsorted(keys, shown, side="right") - 1
        while True:
            early = (index.packet_pts[keys[at]] > index.packet_pts[shown]) & (at > 0)
            if not early.any():
                break
            at -= early
        frames = index.packet_frame[shown]
        start = np.full(int(index.packet_frame.max()) + 1, -1, np.int32)
        packet = start.copy()
        start[frames], packet[frames] = keys[at], shown
        return cls(start, packet, index.num_frames)

    def runs(self, frames: Sequence[int] | NDArray[np.integer]) -> list[DecodeRun]:
        """See `decode_runs`."""
        # Few frames at a time, often: plain numbers are faster here than arrays.
        starts, packets = self.start.data, self.packet.data
        wanted = set(frames.tolist() if isinstance(frames, np.ndarray) else frames)
        parts: list[tuple[int, int, int]] = []
        for frame in sorted(wanted):
            packet = packets[frame] if 0 <= frame < len(packets) else -1
            if packet < 0:
                raise VideoError(
                    f"frame {frame} is not in this camera, which has {self.num_frames} frames"
                )
            parts.append((starts[frame], packet, frame))
        parts.sort()
        runs: list[DecodeRun] = []
        first, stop, held = -1, -1, list[int]()
        for start, packet, frame in parts:
            if start > stop and held:
                runs.append(_run(first, stop, held))
                held = []
            if not held:
                first, stop = start, packet + 1
            held.append(frame)
            stop = max(stop, packet + 1)
        if held:
            runs.append(_run(first, stop, held))
        return runs


def decode_runs(index: VideoIndex, frames: Sequence[int] | NDArray[np.integer]) -> list[DecodeRun]:
    """The fewest packets that give `frames`, as runs in ascending order of packets.

    Runs that overlap or touch are one run. A frame asked for twice is decoded once.

    Args:
        index: the camera.
        frames: display ordinals, any order; each in [0, index.num_frames).

    Raises:
        VideoError: a frame that the camera does not have.
    """
    return RunTable.of(index).runs(frames)


def packet_checksums(data: bytes | memoryview, sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """uint64 [P]: XXH3-64 of each of the packets that lie back to back in `data`."""
    view = memoryview(data)
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    digests = [xxhash.xxh3_64_intdigest(view[a:b]) for a, b in pairwise([0, *ends])]
    return np.array(digests, np.uint64)


def verify_packets(
    index: VideoIndex, first_packet: int, data: bytes | memoryview, stop_packet: int | None = None
) -> None:
    """Check the packets that `data` holds, from `first_packet` on, against the index.

    Where the caller knows the end of the packets, `stop_packet` saves looking at all later ones.

    Raises:
        CorruptDataError: names the first packet whose XXH3-64 or length differs.
    """
    view = memoryview(data)
    sizes = index.packet_size[first_packet:stop_packet].tolist()
    checksums = index.packet_checksum[first_packet:stop_packet].tolist()
    at = 0
    for number, (size, checksum) in enumerate(zip(sizes, checksums, strict=True)):
        if at == len(view):
            return
        if xxhash.xxh3_64_intdigest(view[at : at + size]) != checksum:
            raise CorruptDataError(
                f"video packet {first_packet + number} of {len(index.packet_size)} does not match"
                " its checksum"
            )
        at += size
    if at != len(view):
        raise CorruptDataError(f"{len(view) - at} bytes after the last video packet")


def damaged_packets(index: VideoIndex, run: DecodeRun, data: bytes | memoryview) -> list[int]:
    """Numbers of the packets of a run, ascending, that do not match their checksums.

    Args:
        index: the camera.
        run: as `decode_runs` made it for this index.
        data: the bytes of packets [run.first_packet, run.stop_packet).

    Raises:
        CorruptDataError: `data` is longer or shorter than these packets.
    """
    packets = slice(run.first_packet, run.stop_packet)
    ends = list(accumulate(index.packet_size[packets].tolist()))
    view = memoryview(data)
    if ends[-1] != len(view):
        raise CorruptDataError(
            f"video packets {run.first_packet}..{run.stop_packet - 1} have {ends[-1]} bytes,"
            f" got {len(view)}"
        )
    checksums = index.packet_checksum[packets].tolist()
    digest = xxhash.xxh3_64_intdigest
    parts = zip(pairwise([0, *ends]), checksums, strict=True)
    return [
        run.first_packet + number
        for number, ((start, stop), checksum) in enumerate(parts)
        if digest(view[start:stop]) != checksum
    ]


def _run(first: int, stop: int, frames: list[int]) -> DecodeRun:
    ascending = np.array(sorted(frames), np.int32)
    return DecodeRun(first_packet=first, stop_packet=stop, frames=ascending)
