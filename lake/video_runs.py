"""From wanted frames to the packets that must be read and decoded for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def decode_runs(index: VideoIndex, frames: Sequence[int] | NDArray[np.integer]) -> list[DecodeRun]:
    """The fewest packets that give `frames`, as runs in ascending order of packets.

    A run starts at the last key packet that is neither decoded nor displayed after the frame, since
    a decoder drops what is displayed before the key it started at (open GOP). Runs that overlap or
    touch are one run. A frame asked for twice is decoded once.

    Args:
        index: the camera.
        frames: display ordinals, any order; each in [0, index.num_frames).

    Raises:
        VideoError: a frame that the camera does not have.
    """
    wanted = np.unique(np.asarray(frames, np.int64))
    if not len(wanted):
        return []
    packets = _packets_of(index, wanted)
    keys = np.flatnonzero(index.packet_key)
    at = np.searchsorted(keys, packets, side="right") - 1
    while True:
        early = (index.packet_pts[keys[at]] > index.packet_pts[packets]) & (at > 0)
        if not early.any():
            break
        at -= early
    order = np.argsort(packets)
    starts, stops = keys[at[order]], packets[order] + 1
    # Sorted by packet; a start never lies before an earlier run's start unless they overlap.
    reach = np.maximum.accumulate(stops)
    heads = np.minimum.accumulate(starts[::-1])[::-1]
    new = np.r_[0, np.flatnonzero(heads[1:] > reach[:-1]) + 1, len(starts)]
    return [
        DecodeRun(
            first_packet=int(heads[a]),
            stop_packet=int(reach[b - 1]),
            frames=np.sort(index.packet_frame[packets[order[a:b]]]),
        )
        for a, b in pairwise(new.tolist())
    ]


def verify_packets(index: VideoIndex, first_packet: int, data: bytes | memoryview) -> None:
    """Check the packets that `data` holds, from `first_packet` on, against the index.

    Raises:
        CorruptDataError: names the first packet whose XXH3-64 or length differs.
    """
    view = memoryview(data)
    sizes = index.packet_size[first_packet:].tolist()
    checksums = index.packet_checksum[first_packet:].tolist()
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


def _packets_of(index: VideoIndex, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 [W]: the packet that holds each wanted frame."""
    shown = np.flatnonzero(index.packet_frame >= 0)
    packet_of = np.full(int(index.packet_frame.max()) + 1, -1)
    packet_of[index.packet_frame[shown]] = shown
    known = (wanted >= 0) & (wanted < len(packet_of))
    packets = packet_of[np.where(known, wanted, 0)] if len(packet_of) else np.full(len(wanted), -1)
    missing = wanted[~known | (packets < 0)]
    if len(missing):
        raise VideoError(
            f"frame {missing[0]} is not in this camera, which has {index.num_frames} frames"
        )
    return packets
