"""How others pack, written anew from what they publish; each takes lengths in the same order.

- TRL's `bfd` (`trl.pack_dataset`, 1.16): best-fit decreasing, rooms found in a segment tree, each
  room's packs first in first out. It runs inside `Dataset.map(batched=True)`, so a pack never holds
  rows of two batches of 1,000. Rows longer than a pack are cut off (`bfd`) or split (`bfd_split`).
- LLaMA-Factory's greedy knapsack (`greedy_knapsack` of its packed supervised processor): each pack
  takes the longest that fits, again and again; also in batches of 1,000. Longer rows are left out.
- Next-fit: one open pack; what does not fit closes it. The plain way to pack a stream.

After: H. Ding et al., "Fewer Truncations Improve Language Modeling", ICML 2024 (arXiv 2404.10830),
for best-fit decreasing on a segment tree; D. Johnson, "Near-optimal bin packing algorithms", 1973.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from packing.packs import Packing
from packing.spans import Int64s
from tools.bench.packing_data import Overflow
from tools.bench.packing_trl import TRL_ITSELF

BATCH_ROWS: Final = 1000

Packs = list[list[int]]


def next_fit(lengths: Sequence[int], budget: int) -> Packs:
    """Fill one pack after the other in the order of the stream."""
    packs: Packs = []
    room = -1
    for item, length in enumerate(lengths):
        if length > room:
            packs.append([])
            room = budget
        packs[-1].append(item)
        room -= length
    return packs


class RoomTree:
    """The least room of at least some length among those present, in O(log budget).

    Leaf r - 1 holds r where a pack with room r is open, else 0; an inner node the most below it.
    """

    def __init__(self, budget: int) -> None:
        self._leaves = 1 << (budget - 1).bit_length()
        self._most = [0] * (2 * self._leaves)

    def put(self, room: int) -> None:
        """A pack with this room is open."""
        self._set(room, room)

    def remove(self, room: int) -> None:
        """No pack with this room is open any more."""
        self._set(room, 0)

    def _set(self, room: int, value: int) -> None:
        most = self._most
        at = self._leaves + room - 1
        most[at] = value
        while at > 1:
            most[at >> 1] = max(value, most[at ^ 1])
            at >>= 1
            value = most[at]

    def tightest(self, length: int) -> int:
        """The least room present that takes `length`; 0 where there is none."""
        most = self._most
        if most[1] < length:
            return 0
        at = 1
        while at < self._leaves:
            at <<= 1
            if most[at] < length:
                at += 1
        return most[at]


def tree_bfd(lengths: Sequence[int], budget: int) -> Packs:
    """Best-fit decreasing, item by item; equal lengths and equal rooms first in first out."""
    rooms = RoomTree(budget)
    open_packs: defaultdict[int, deque[int]] = defaultdict(deque)
    packs: Packs = []
    for item in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[item]
        room = rooms.tightest(length)
        if room:
            same = open_packs[room]
            pack = same.popleft()
            if not same:
                rooms.remove(room)
        else:
            room = budget
            pack = len(packs)
            packs.append([])
        packs[pack].append(item)
        if left := room - length:
            if not open_packs[left]:
                rooms.put(left)
            open_packs[left].append(pack)
    return packs


def greedy_knapsack(lengths: Sequence[int], budget: int) -> Packs:
    """Pack after pack, the longest that fits; of equal lengths the last in the stream first."""
    left = sorted(range(len(lengths)), key=lengths.__getitem__)
    sizes = [lengths[item] for item in left]
    packs: Packs = []
    while sizes:
        room = budget
        packs.append([])
        while at := bisect_right(sizes, room):
            room -= sizes.pop(at - 1)
            packs[-1].append(left.pop(at - 1))
    return packs


Packer = Callable[[Sequence[int], int], Packs]


def in_batches(packer: Packer, lengths: Sequence[int], budget: int, batch: int) -> Packs:
    """Pack `batch` items at a time, as `Dataset.map(batched=True)` hands them over."""
    packs: Packs = []
    for begin in range(0, len(lengths), batch):
        part = packer(lengths[begin : begin + batch], budget)
        packs += [[begin + item for item in pack] for pack in part]
    return packs


def packing_of(packs: Iterable[Sequence[int]]) -> Packing:
    """As columns."""
    items: list[int] = []
    offsets = [0]
    for pack in packs:
        items += pack
        offsets.append(len(items))
    return Packing(items=np.asarray(items, np.int64), offsets=np.asarray(offsets, np.int64))


# What each does with rows longer than a pack, as shipped.
OVERFLOW: Final[dict[str, Overflow]] = {
    TRL_ITSELF: "truncate",
    "TRL bfd, batches of 1,000": "truncate",
    "TRL bfd, global": "truncate",
    "knapsack, batches of 1,000": "drop",
    "knapsack, global": "drop",
}


def peer_packing(contender: str, lengths: Int64s, budget: int, batch: int) -> Packing:
    """Pack as `contender` does.

    Args:
        contender: one of `PEERS`.
        lengths: int64 [n], in the order of the stream, none over the budget.
        budget: tokens of a pack.
        batch: items that 1,000 rows make.
    """
    return packing_of(PEERS[contender](lengths.tolist(), budget, batch))


PEERS: Final[dict[str, Callable[[list[int], int, int], Packs]]] = {
    "next-fit": lambda lengths, budget, _: next_fit(lengths, budget),
    "TRL bfd, batches of 1,000": lambda lengths, budget, batch: in_batches(
        tree_bfd, lengths, budget, batch
    ),
    "TRL bfd, global": lambda lengths, budget, _: tree_bfd(lengths, budget),
    "knapsack, batches of 1,000": lambda lengths, budget, batch: in_batches(
        greedy_knapsack, lengths, budget, batch
    ),
    "knapsack, global": lambda lengths, budget, _: greedy_knapsack(lengths, budget),
}
