"""Which frames to decode for a pack, which of them to keep for coming packs, and until when.

The plan says what is shown next, so nothing is guessed: a group of pictures that must be decoded
is decoded for all packs within the look-ahead at once, only frames that will be shown are kept,
and each is dropped after its last known use.
"""

from collections import deque
from dataclasses import dataclass

from loader.episodes import CameraStream
from loader.images import FrameKey, ImageTable


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
        # stream -> start of decoding -> frame -> positions of the coming packs that show it.
        self._uses: dict[CameraStream, dict[int, dict[int, deque[int]]]] = {}
        self._kept: set[FrameKey] = set()
        self._kept_bytes = 0

    def enter(self, position: int, table: ImageTable) -> None:
        """A coming pack is known; positions ascend."""
        for stream, frame in table.rows_by_key:
            groups = self._uses.get(stream)
            if groups is None:
                groups = self._uses[stream] = {}
            group = groups.setdefault(stream.run_starts[frame], {})
            group.setdefault(frame, deque()).append(position)

    def plan(self, table: ImageTable) -> PackPictures:
        """Plan the first pack that was entered and not yet planned."""
        missing: dict[CameraStream, list[int]] = {}
        drop: list[FrameKey] = []
        reused = 0
        for key in table.rows_by_key:
            again = self._leave(key)
            if key not in self._kept:
                missing.setdefault(key.stream, []).append(key.frame)
                continue
            reused += 1
            if not again:
                drop.append(key)
        decode: dict[CameraStream, list[int]] = {}
        keep: list[FrameKey] = []
        for stream, frames in missing.items():
            coming = self._keep_of(stream, {stream.run_starts[frame] for frame in frames})
            keep += coming
            decode[stream] = sorted({*frames, *(key.frame for key in coming)})
        for key in drop:
            self._kept.discard(key)
            self._kept_bytes -= key.stream.frame_bytes
        return PackPictures(decode=decode, keep=frozenset(keep), drop=tuple(drop), reused=reused)

    def _leave(self, key: FrameKey) -> bool:
        """Strike out this pack's use of a frame; whether a coming pack shows it again."""
        groups = self._uses[key.stream]
        start = key.stream.run_starts[key.frame]
        group = groups[start]
        uses = group[key.frame]
        uses.popleft()
        if uses:
            return True
        del group[key.frame]
        if not group:
            del groups[start]
            if not groups:
                del self._uses[key.stream]
        return False

    def _keep_of(self, stream: CameraStream, starts: set[int]) -> list[FrameKey]:
        """Frames of the groups that coming packs show, the soonest first, as far as they fit."""
        groups = self._uses.get(stream, {})
        coming = sorted(
            (uses[0], frame) for start in starts for frame, uses in groups.get(start, {}).items()
        )
        size = stream.frame_bytes
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
