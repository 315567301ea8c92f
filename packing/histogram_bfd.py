"""Best-fit decreasing on a histogram of lengths.

Best-fit decreasing puts the longest span first, each into the fullest pack that still takes it.
Spans of one length are interchangeable and so are packs with one room, so the work is done on
counts: groups of packs with equal content. Time depends on the number of distinct lengths, not on
the number of spans, and the rooms left are exactly those of the span-by-span algorithm.

After: M. Krell et al., "Efficient Sequence Packing without Cross-contamination", 2021 (packing on
histograms); D. Johnson, "Near-optimal bin packing algorithms", 1973 (best-fit decreasing).
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from packing.packs import Load, Packing
from packing.seeded import STREAM_PACKS, Indices, permutation
from packing.spans import Int64s


@dataclass(frozen=True)
class PackGroup:
    """`packs` packs that all hold the same lengths.

    `content` is a linked list (so that groups can share their beginnings): the last
    (length, times) put in, and the content before.
    """

    packs: int
    content: "tuple[PackContent, int, int] | None"

    def lengths(self) -> list[tuple[int, int]]:
        """(length, times) in each pack of the group."""
        out = []
        content = self.content
        while content is not None:
            content, length, times = content
            out.append((length, times))
        return out


PackContent = tuple["PackContent", int, int] | None


class _Rooms:
    """Groups of open packs by the room they have left."""

    def __init__(self) -> None:
        self.full: list[PackGroup] = []
        self.present: list[int] = []  # ascending
        self._groups: dict[int, list[PackGroup]] = {}

    def put(self, room: int, group: PackGroup) -> None:
        if room == 0:
            self.full.append(group)
        elif room in self._groups:
            self._groups[room].append(group)
        else:
            self._groups[room] = [group]
            insort(self.present, room)

    def tightest(self, length: int) -> tuple[int, PackGroup] | None:
        """Take out a group of the least room that takes `length`."""
        at = bisect_left(self.present, length)
        if at == len(self.present):
            return None
        room = self.present[at]
        group = self._groups[room].pop()
        if not self._groups[room]:
            del self._groups[room]
            del self.present[at]
        return room, group

    def all(self) -> list[PackGroup]:
        return self.full + [group for room in self.present for group in self._groups[room]]


def pack_histogram(histogram: NDArray[np.int64], budget: int) -> list[PackGroup]:
    """Best-fit decreasing of `histogram[length]` spans of each length into packs of `budget`.

    Spans of length 0 are left out; none is longer than the budget.
    """
    rooms = _Rooms()
    for length in np.flatnonzero(histogram)[::-1].tolist():
        if length == 0:
            continue
        left = int(histogram[length])
        while left and (found := rooms.tightest(length)) is not None:
            room, group = found
            left = _fill(rooms, room, group, length, left)
        if left:
            _fill(rooms, budget, PackGroup(-(-left // (budget // length)), None), length, left)
    return rooms.all()


def _fill(rooms: _Rooms, room: int, group: PackGroup, length: int, left: int) -> int:
    """Put up to `left` spans into the packs of a group, pack after pack; returns what is left.

    A pack with the least room that takes `length` stays the tightest until it takes no more, so
    each pack is given as many as fit before the next.
    """
    times = room // length
    whole = min(group.packs, left // times)
    if whole:
        rooms.put(room - times * length, PackGroup(whole, (group.content, length, times)))
        left -= whole * times
    untouched = group.packs - whole
    if untouched and left:
        rooms.put(room - left * length, PackGroup(1, (group.content, length, left)))
        left = 0
        untouched -= 1
    if untouched:
        rooms.put(room, PackGroup(untouched, group.content))
    return left


def histogram_bfd(order: Indices, tokens: Load, seed: int, epoch: int) -> Packing:
    """Pack by best-fit decreasing; which span of a length goes where follows the stream.

    Args:
        order: [n], span indices in the order in which they are drawn.
        tokens: the token dimension.
        seed: of the order of the packs, which is uniformly random.
        epoch: each is ordered afresh.
    """
    lengths = tokens.per_span[order].astype(np.int64)
    histogram = np.bincount(lengths, minlength=tokens.limit + 1)
    groups = pack_histogram(histogram, tokens.limit)
    by_length = np.argsort(lengths, kind="stable")
    used = np.concatenate([[0], np.cumsum(histogram)])[:-1]
    used[0] += histogram[0]
    parts: list[Int64s] = []
    sizes: list[Int64s] = []
    for group in groups:
        columns = []
        for length, times in group.lengths():
            at = used[length]
            block = by_length[at : at + group.packs * times]
            columns.append(block.reshape(group.packs, times))
            used[length] += group.packs * times
        rows = np.concatenate(columns, axis=1)
        parts.append(rows.ravel())
        sizes.append(np.full(group.packs, rows.shape[1], np.int64))
    items = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    offsets = (
        np.concatenate([[0], np.cumsum(np.concatenate(sizes))]) if sizes else np.zeros(1, np.int64)
    )
    packing = Packing(items=order[items], offsets=offsets)
    return packing.reorder(permutation(len(packing), seed, STREAM_PACKS, epoch))
