"""The packets of a camera that step ranges of episodes need, joined to one camera."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake.errors import EditError
from lake.video_index import VideoIndex
from lake.video_runs import RunTable

_SAME = (
    *("codec", "width", "height", "pix_fmt", "time_base", "extradata", "color_range"),
    *("color_space", "color_primaries", "color_transfer", "rotation_deg"),
)


@dataclass(frozen=True)
class Cut:
    """Steps [start, stop) of an episode, and its camera; None where it has no such camera."""

    index: VideoIndex | None
    start: int
    stop: int


@dataclass(frozen=True)
class Piece:
    """Packets [first, stop) of the camera of cut number `cut`: bytes [offset, offset + length)."""

    cut: int
    first: int
    stop: int
    offset: int
    length: int


def join_cuts(cuts: Sequence[Cut]) -> tuple[VideoIndex, list[Piece]] | None:
    """One index over the packets that the cuts need, and where these packets come from.

    Each cut starts at the key packet from which its first picture decodes. Pictures that are
    decoded on the way, and not shown at any step, count as preroll.

    Returns:
        None where no step of any cut has a picture.

    Raises:
        EditError: the cameras differ in what a decoder must know.
    """
    pieces: list[Piece] = []
    indexes: list[VideoIndex] = []
    step_to_frame: list[NDArray[np.int32]] = []
    frames: list[NDArray[np.int32]] = []
    pts: list[NDArray[np.int64]] = []
    next_frame, hidden, next_pts = 0, 0, None
    for number, cut in enumerate(cuts):
        shown = np.full(cut.stop - cut.start, -1, np.int32)
        step_to_frame.append(shown)
        if cut.index is None:
            continue
        steps = cut.index.step_to_frame[cut.start : cut.stop]
        wanted = np.unique(steps[steps >= 0])
        if not len(wanted):
            continue
        runs = RunTable.of(cut.index).runs(wanted)
        first, stop = min(r.first_packet for r in runs), max(r.stop_packet for r in runs)
        shown[steps >= 0] = steps[steps >= 0] - wanted[0] + next_frame
        packets = slice(first, stop)
        of_packet = cut.index.packet_frame[packets].astype(np.int32)
        inside = (of_packet >= wanted[0]) & (of_packet <= wanted[-1])
        moved = np.where(inside, of_packet - wanted[0] + next_frame, 0).astype(np.int32)
        moved[~inside] = -1 - hidden - np.arange((~inside).sum(), dtype=np.int32)
        frames.append(moved)
        stamps = cut.index.packet_pts[packets]
        pts.append(stamps if next_pts is None else stamps - stamps.min() + next_pts)
        next_pts = int(pts[-1].max()) + 1
        next_frame += int(wanted[-1] - wanted[0]) + 1
        hidden += int((~inside).sum())
        offsets = cut.index.packet_offsets()
        offset = int(offsets[first])
        pieces.append(Piece(number, first, stop, offset, int(offsets[stop]) - offset))
        indexes.append(cut.index)
    if not pieces:
        return None
    for index in indexes[1:]:
        for name in _SAME:
            if (ours := getattr(indexes[0], name)) != (theirs := getattr(index, name)):
                raise EditError(f"{name} is {ours!r} in one and {theirs!r} in another")

    def joined(name: str) -> NDArray[Any]:
        arrays = zip(indexes, pieces, strict=True)
        return np.concatenate([getattr(i, name)[p.first : p.stop] for i, p in arrays])

    qualities = dict.fromkeys(index.quality for index in indexes)
    index = replace(
        indexes[0],
        quality=" | ".join(qualities),
        packet_size=joined("packet_size"),
        packet_frame=np.concatenate(frames),
        packet_pts=np.concatenate(pts),
        packet_checksum=joined("packet_checksum"),
        packet_key=joined("packet_key"),
        step_to_frame=np.concatenate(step_to_frame),
    )
    return index, pieces
