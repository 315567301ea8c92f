"""Steps of equal cost on every rank.

A step lasts as long as its costliest rank, and attention makes cost uneven among packs of equal
token count. Packs of like cost are therefore put into the same step: inside a window of some steps
packs are sorted by cost and cut into steps of S, and these steps, whose costs differ, are shuffled
inside the window. The window is what keeps the order of the draw, and hence its locality and
shuffle, so it is no larger than the costs ask for.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from packing.cost import CostModel
from packing.packs import Packing
from packing.seeded import STREAM_SLOTS, STREAM_STEPS, random_words
from packing.spans import Int64s, Spans

ENOUGH_PERCENT: Final = 2
MOST_WINDOW_STEPS: Final = 64
ENOUGH_PACKS: Final = 1 << 20


def balance(
    packing: Packing,
    cost: Int64s,
    *,
    slots: int,
    window_steps: int,
    seed: int,
    epoch: int,
    lane_packs: Sequence[int] | None = None,
) -> Packing:
    """Order packs into steps of S slots; what is missing at the end is filled up with empty packs.

    Lane l of L keeps to slots l, l + L, ...; a step then takes packs that have the same rank by
    cost in every lane. The steps that not all lanes can fill come last.

    Args:
        packing: P packs in stream order, lane after lane.
        cost: int64 [P], any unit.
        slots: packs of a step, S.
        window_steps: steps among whose packs those of like cost are gathered.
        seed: of the shuffle.
        epoch: each is shuffled afresh.
        lane_packs: packs of each lane, of as many lanes as divide S; one lane where None.

    Returns:
        As many steps as the longest lane needs: ceil(P / S) * S packs of one lane.
    """
    packs = np.array([len(packing)] if lane_packs is None else lane_packs, np.int64)
    places = slots // len(packs)
    steps = -(-int(packs.max()) // places)
    begin = np.cumsum(packs) - packs
    # The stream's last packs, not the cheapest of all, make up the unfilled steps.
    table = begin + np.arange(steps * places, dtype=np.int64)[:, None]
    table[table >= begin + packs] = -1
    table = table.reshape(steps, places, len(packs))
    whole = int(packs.min()) // places
    rows = _like_costs(table[:whole], cost, window_steps)
    step_window = np.arange(whole) // window_steps
    rows = rows[np.lexsort((random_words(whole, seed, STREAM_STEPS, epoch), step_window))]
    words = random_words(whole * slots, seed, STREAM_SLOTS, epoch).reshape(rows.shape)
    table[:whole] = np.take_along_axis(rows, np.argsort(words, axis=1, kind="stable"), axis=1)
    return packing.reorder(table.ravel())


def _like_costs(table: Int64s, cost: Int64s, window_steps: int) -> Int64s:
    """The packs of each lane sorted by cost inside each window of steps.

    Args:
        table: int64 [steps, S / L, L], packs.
        cost: int64 [P].
        window_steps: steps of a window; the last may have fewer.
    """
    whole = len(table) // window_steps * window_steps
    like = np.empty_like(table)
    for steps in (slice(whole), slice(whole, None)):
        part = table[steps]
        if len(part):
            window = part.reshape(-1, min(window_steps, len(part)) * part.shape[1], part.shape[2])
            order = np.argsort(cost[window], axis=1, kind="stable")
            like[steps] = np.take_along_axis(window, order, axis=1).reshape(part.shape)
    return like


def enough_window_steps(cost: Int64s, slots: int, lane_packs: Sequence[int] | None = None) -> int:
    """The smallest power of two, at most 64, with which S ranks lose at most 2 % by imbalance.

    Args:
        cost: int64 [P] of packs in stream order, lane after lane, any unit; the first million that
            are consumed are looked at.
        slots: packs of a step, S.
        lane_packs: packs of each lane; one lane where None.
    """
    packs = np.array([len(cost)] if lane_packs is None else lane_packs, np.int64)
    places = slots // len(packs)
    steps = min(int(packs.min()) // places, max(MOST_WINDOW_STEPS, ENOUGH_PACKS // slots))
    table = np.cumsum(packs) - packs + np.arange(steps * places, dtype=np.int64)[:, None]
    table = table.reshape(steps, places, len(packs))
    window_steps = 1
    while window_steps < MOST_WINDOW_STEPS:
        like = cost[_like_costs(table, cost, window_steps)].reshape(steps, slots)
        # In integers: a choice that a plan depends on must not hang on the last bit of a float.
        lasts, works = int(like.max(axis=1, initial=0).sum()) * slots, int(like.sum())
        if lasts * 100 <= works * (100 + ENOUGH_PERCENT):
            break
        window_steps *= 2
    return window_steps


def pack_costs(packing: Packing, spans: Spans, cost: CostModel) -> Int64s:
    """int64 [P]: cost of each pack in the model's units."""
    tokens, squares = packing.sum_and_squares(spans.tokens)
    images = packing.sum(spans.images) if cost.per_image else np.zeros(len(packing), np.int64)
    return cost.units(tokens, squares, images, packing.sizes)


def max_over_mean(cost: Int64s, slots: int, world_size: int) -> float:
    """How much longer a job of `world_size` ranks takes than with equal costs.

    Sum over steps of the costliest rank's cost, over the sum of the mean rank's. Rank r has the
    packs in slots r, r + world_size, ... of a step.

    Args:
        cost: int64 [steps * slots].
        slots: slots of a step, S.
        world_size: at most S.
    """
    if not cost.size or not cost.any():
        return 1.0
    grid = cost.reshape(-1, slots)
    per_rank = np.stack([grid[:, r::world_size].sum(axis=1) for r in range(world_size)], axis=1)
    # In Python's integers: a sum of costs fits int64, its product with a world size need not.
    return int(per_rank.max(axis=1).sum()) * world_size / int(per_rank.sum())
