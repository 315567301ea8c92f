"""How many frames a loader decodes and keeps for a plan of windows, without decoding any.

The rule is that of `loader.fetch.reuse`: when a frame is missing, its group of pictures is decoded
from its key frame to the last frame that this pack or a known coming pack shows; those shown are
kept until then. How many coming packs are known is the rule of `loader.fetch.fetcher`. A rank is
one decoder that sees its own slots only. Every frame is shown by one window (a history of 1).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from loader.fetch.fetcher import WINDOW_PACKS
from packing.spans import Int64s

# As `loader.fetch.fetcher` looks ahead at most.
MOST_LOOK_AHEAD_PACKS: Final = 256
MOST_LOOK_AHEAD_IMAGES: Final = 1 << 14


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """What the ranks of a job do for one epoch.

    Attributes:
        decoded_per_wanted: frames decoded over frames shown, all ranks together; 1 is ideal.
        held_frames: most frames of one camera kept at a time, of the rank that keeps the most.
    """

    decoded_per_wanted: float
    held_frames: int


def look_ahead_packs(run_steps: int, packs_per_step: int, images_per_pack: float) -> int:
    """Packs beyond the current window that a rank's loader knows of."""
    reach = min(max(run_steps * packs_per_step, WINDOW_PACKS), MOST_LOOK_AHEAD_PACKS)
    by_images = int(MOST_LOOK_AHEAD_IMAGES / images_per_pack) - WINDOW_PACKS
    return max(0, min(reach, by_images))


def simulate(
    *,
    slot_row: Int64s,
    frame: Int64s,
    key: Int64s,
    slots: int,
    ranks: int,
    look_ahead: int,
) -> Decoding:
    """Decode one camera of one epoch on `ranks` ranks.

    Args:
        slot_row: int64 [n], row of the plan (step * slots + slot) in which each window lies.
        frame: int64 [n], the frame that it shows, numbered over all episodes.
        key: int64 [n], the key frame of that frame's group.
        slots: packs of a step, S.
        ranks: at most S, and S is a multiple; rank r has the slots r, r + ranks, ...
        look_ahead: packs beyond the current window of 8 that are known.
    """
    rank = slot_row % slots % ranks
    position = slot_row // slots * (slots // ranks) + slot_row % slots // ranks
    far = int(position.max()) + 1
    group = rank * (int(key.max()) + 1) + key
    order = np.lexsort((frame, position, group))
    group, position, frame, key = group[order], position[order], frame[order], key[order]
    place = np.unique(group, return_inverse=True)[1] * far + position
    # Known while pack p is planned: its window of 8, which begins at a multiple of 8, and beyond.
    known = position - position % WINDOW_PACKS + WINDOW_PACKS - 1 + look_ahead
    after = np.searchsorted(place, place - position + np.minimum(known, far - 1), side="right")
    begins = _events(group, after)
    last = np.maximum.reduceat(frame, begins)
    counts = np.diff(np.append(begins, len(frame)))
    since = np.repeat(position[begins], counts)
    held = np.zeros((int(rank.max()) + 1, far + 1), np.int64)
    kept = position > since
    of_rank = rank[order][kept]
    np.add.at(held, (of_rank, since[kept]), 1)
    np.add.at(held, (of_rank, position[kept] + 1), -1)
    return Decoding(
        decoded_per_wanted=float((last - key[begins] + 1).sum()) / len(frame),
        held_frames=int(held.cumsum(axis=1).max()),
    )


def _events(group: Int64s, after: Int64s) -> Int64s:
    """Where decoding happens, ascending: at the first use of a group, and where it was unknown.

    Args:
        group: int64 [n], ascending.
        after: int64 [n], the first use that is unknown when the group is decoded for this one.
    """
    event = np.zeros(len(group), np.bool_)
    now = np.flatnonzero(np.diff(group, prepend=-1))
    while len(now):
        event[now] = True
        then = after[now]
        inside = then < len(group)
        now = then[inside][group[then[inside]] == group[now[inside]]]
    return np.flatnonzero(event)
