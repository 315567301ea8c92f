"""Which frames to decode for a pack, which of them to keep for coming packs, and until when.

The plan says what is shown next, so nothing is guessed: a group of pictures that must be decoded
is decoded for all packs within the look-ahead at once, only frames that will be shown are kept,
and each is dropped after its last known use.
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

import av

from loader.episodes import CameraStream
from loader.images import ImageTable


class FrameKey(NamedTuple):
    """One frame of one camera of one episode."""

    stream: CameraStream
    frame: int


@dataclass(frozen=True, kw_only=True)
class PackPictures:
    """What one pack decodes, takes from memory, keeps and drops.

    Attributes:
        decode: stream -> display ordinals, ascending.
        keep: of the decoded frames, those that a coming pack shows.
        drop: kept frames that no coming pack shows, to be dropped once this pack is done.
        reused: frames that this pack shows and that are kept already.
    """

    decode: dict[CameraStream, list[int]]
    keep: frozenset[FrameKey]
    drop: tuple[FrameKey, ...]
    reused: int


class Reuse:
    """Plans the decoding of packs, in their order, with at most `limit_bytes` of kept frames."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        # stream -> group of pictures -> frame -> positions of the coming packs that show it.
        self._uses: dict[CameraStream, dict[int, dict[int, deque[int]]]] = {}
        self._kept: set[FrameKey] = set()
        self._kept_bytes = 0

    def enter(self, position: int, table: ImageTable) -> None:
        """A coming pack is known; positions ascend."""
        for stream, frames in table.frames_by_stream().items():
            groups = self._uses.setdefault(stream, defaultdict(dict))
            gops = stream.gop_of_frame[frames].tolist()
            for frame, gop in zip(frames.tolist(), gops, strict=True):
                groups[gop].setdefault(frame, deque()).append(position)

    def plan(self, table: ImageTable) -> PackPictures:
        """Plan the first pack that was entered and not yet planned."""
        decode: dict[CameraStream, list[int]] = {}
        keep: list[FrameKey] = []
        drop: list[FrameKey] = []
        reused = 0
        for stream, frames in table.frames_by_stream().items():
            wanted = frames.tolist()
            gops = stream.gop_of_frame[frames].tolist()
            again = self._leave(stream, wanted, gops)
            missing = []
            gops_to_decode: dict[int, None] = {}
            for frame, gop in zip(wanted, gops, strict=True):
                if (key := FrameKey(stream, frame)) in self._kept:
                    reused += 1
                    if frame not in again:
                        drop.append(key)
                else:
                    missing.append(frame)
                    gops_to_decode[gop] = None
            if not missing:
                continue
            kept = self._keep_of(stream, gops_to_decode)
            keep += kept
            decode[stream] = sorted({*missing, *(key.frame for key in kept)})
        self._forget(drop)
        return PackPictures(decode=decode, keep=frozenset(keep), drop=tuple(drop), reused=reused)

    def _leave(self, stream: CameraStream, frames: list[int], gops: list[int]) -> set[int]:
        """Strike out this pack's uses; returns the frames that a coming pack shows again."""
        groups = self._uses[stream]
        again = set()
        for frame, gop in zip(frames, gops, strict=True):
            uses = groups[gop][frame]
            uses.popleft()
            if uses:
                again.add(frame)
                continue
            del groups[gop][frame]
            if not groups[gop]:
                del groups[gop]
        if not groups:
            del self._uses[stream]
        return again

    def _keep_of(self, stream: CameraStream, gops: dict[int, None]) -> list[FrameKey]:
        """Frames of the groups that coming packs show, the soonest first, as far as they fit."""
        groups = self._uses.get(stream, {})
        coming = sorted(
            (uses[0], frame) for gop in gops for frame, uses in groups.get(gop, {}).items()
        )
        size = frame_bytes(stream)
        kept = []
        for _, frame in coming:
            key = FrameKey(stream, frame)
            if key in self._kept:
                continue
            if self._kept_bytes + size > self._limit:
                break
            self._kept.add(key)
            self._kept_bytes += size
            kept.append(key)
        return kept

    def _forget(self, keys: list[FrameKey]) -> None:
        for key in keys:
            self._kept.discard(key)
            self._kept_bytes -= frame_bytes(key.stream)


def frame_bytes(stream: CameraStream) -> int:
    """Bytes of one decoded frame of a stream, as its pixel format lies in memory."""
    bits = av.VideoFormat(stream.index.pix_fmt).padded_bits_per_pixel
    return stream.index.width * stream.index.height * max(bits, 8) // 8
