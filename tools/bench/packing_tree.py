"""Best-fit decreasing on a segment tree over all spans at once, compiled.

The algorithm of H. Ding et al. (arXiv 2404.10830), the same as TRL's over one batch, in flat arrays
so that numba can compile it; without numba it is the same Python, slower. Packs of one room are a
stack, linked through `below`.
"""

from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from packing.packs import Packing
from packing.spans import Int64s


@cache
def _compiled() -> Callable[[Int64s, int, Int64s], int]:
    try:
        from numba import njit
    except ImportError:
        return _fill
    return cast("Callable[[Int64s, int, Int64s], int]", njit(cache=True)(_fill))


def _fill(lengths: Int64s, budget: int, pack_of: Int64s) -> int:
    """Give each of the lengths, the longest first, a pack; returns the number of packs."""
    leaves = 1
    while leaves < budget:
        leaves *= 2
    most = np.zeros(2 * leaves, np.int64)
    top = np.full(budget + 1, -1, np.int64)
    below = np.full(len(lengths), -1, np.int64)
    packs = 0
    for item in range(len(lengths)):
        length = lengths[item]
        if most[1] >= length:
            at = 1
            while at < leaves:
                at *= 2
                if most[at] < length:
                    at += 1
            room = most[at]
            pack = top[room]
            top[room] = below[pack]
            if top[room] < 0:
                most[at] = 0
                while at > 1:
                    at //= 2
                    most[at] = max(most[2 * at], most[2 * at + 1])
        else:
            room, pack = budget, packs
            packs += 1
        pack_of[item] = pack
        left = room - length
        if left > 0:
            below[pack] = top[left]
            top[left] = pack
            at = leaves + left - 1
            if most[at] == 0:
                most[at] = left
                while at > 1:
                    at //= 2
                    most[at] = max(most[2 * at], most[2 * at + 1])
    return packs


def segment_tree_bfd(lengths: Int64s, budget: int) -> Packing:
    """Best-fit decreasing of lengths (int64 [n], none over the budget)."""
    by_length: NDArray[np.int64] = np.argsort(-lengths, kind="stable")
    pack_of = np.empty(len(lengths), np.int64)
    packs = _compiled()(lengths[by_length], budget, pack_of)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(pack_of, minlength=packs))])
    return Packing(items=by_length[np.argsort(pack_of, kind="stable")], offsets=offsets)
