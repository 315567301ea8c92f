"""Which frames to decode for a pack, which of them to keep for coming packs, and until when.

The plan says what is shown next, so nothing is guessed: a group of pictures that must be decoded
is decoded for all packs within the look-ahead at once, only frames that will be shown are kept,
and each is dropped after its last known use.
"""

from dataclasses import dataclass

from loader.fetch.episodes import CameraStream
from loader.fetch.images import ImageTable


@dataclass(frozen=True, kw_only=True)
class PackPictures:
    """What one pack decodes, takes from memory, keeps and drops; frames are display ordinals.

    Attributes:
        decode: stream -> frames, ascending.
        keep: stream -> of the decoded frames, those that a coming pack shows.
        drop: stream -> kept frames that no coming pack shows, to be dropped once this pack is done.
        reused: frames that this pack shows and that are kept already.
    """

    decode: dict[CameraStream, list[int]]
    keep: dict[CameraStream, list[int]]
    drop: dict[CameraStream, list[int]]
    reused: int


class Reuse:
    """Plans the decoding of packs, in their order, with at most `limit_bytes` of kept frames."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        # stream -> packet where decoding starts -> frame -> coming packs that show it. Frames that
        # became known first stand first.
        self._uses: dict[CameraStream, dict[int, dict[int, int]]] = {}
        self._kept: dict[CameraStream, set[int]] = {}
        self._kept_bytes = 0

    def enter(self, table: ImageTable) -> None:
        """The next coming pack is known."""
        for stream, frames in table.rows.items():
            groups = self._uses.setdefault(stream, {})
            starts = stream.run_starts
            for frame in frames:
                group = groups.setdefault(starts[frame], {})
                group[frame] = group.get(frame, 0) + 1

    def plan(self, table: ImageTable) -> PackPictures:
        """Plan the first pack that was entered and not yet planned."""
        decode: dict[CameraStream, list[int]] = {}
        keep: dict[CameraStream, list[int]] = {}
        drop: dict[CameraStream, list[int]] = {}
        reused = 0
        for stream, frames in table.rows.items():
            unused = self._leave(stream, frames)
            kept = self._kept.get(stream, set())
            if not kept.isdisjoint(frames):
                reused += len(kept & frames.keys())
                if gone := [frame for frame in unused if frame in kept]:
                    drop[stream] = gone
            if missing := [frame for frame in frames if frame not in kept]:
                coming = self._keep_of(stream, {stream.run_starts[frame] for frame in missing})
                if coming:
                    keep[stream] = coming
                decode[stream] = sorted({*missing, *coming})
        for stream, gone in drop.items():
            self._kept[stream].difference_update(gone)
            self._kept_bytes -= len(gone) * stream.frame_bytes
            if not self._kept[stream]:
                del self._kept[stream]
        return PackPictures(decode=decode, keep=keep, drop=drop, reused=reused)

    def expects(self, stream: CameraStream) -> bool:
        """Whether a known coming pack shows anything of a camera."""
        return stream in self._uses

    def coming(self, stream: CameraStream) -> list[int]:
        """Frames that coming packs will decode as far as is known: shown there, and not kept."""
        kept = self._kept.get(stream, set())
        groups = self._uses.get(stream, {}).values()
        return [frame for group in groups for frame in group if frame not in kept]

    def _leave(self, stream: CameraStream, frames: dict[int, list[int]]) -> list[int]:
        """Strike out this pack's uses; returns the frames that no coming pack shows."""
        groups = self._uses[stream]
        starts = stream.run_starts
        unused = []
        for frame in frames:
            group = groups[starts[frame]]
            left = group[frame] - 1
            if left:
                group[frame] = left
                continue
            unused.append(frame)
            del group[frame]
            if not group:
                del groups[starts[frame]]
        if not groups:
            del self._uses[stream]
        return unused

    def _keep_of(self, stream: CameraStream, starts: set[int]) -> list[int]:
        """Frames of the groups that coming packs show, as far as they fit; now counted as kept."""
        groups = self._uses.get(stream)
        if not groups:
            return []
        kept = self._kept.setdefault(stream, set())
        size = stream.frame_bytes
        coming = []
        for start in starts:
            for frame in groups.get(start, ()):
                if frame in kept:
                    continue
                if self._kept_bytes + size > self._limit:
                    break
                kept.add(frame)
                self._kept_bytes += size
                coming.append(frame)
        if not kept:
            del self._kept[stream]
        return coming
