"""Steps of equal cost on every rank.

A step lasts as long as its costliest rank, and attention makes cost uneven among packs of equal
token count. Packs of like cost are therefore put into the same step: inside a window of some steps
packs are sorted by cost and cut into steps of S, and these steps, whose costs differ, are shuffled
inside the window. The window is what keeps the order of the draw, and hence its locality and
shuffle, so it is no larger than the costs ask for.
"""

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
    packing: Packing, cost: Int64s, *, slots: int, window_steps: int, seed: int, epoch: int
) -> Packing:
    """Order packs into steps of S slots; the last step is filled up with empty packs.

    Args:
        packing: P packs in stream order.
        cost: int64 [P], any unit.
        slots: packs of a step, S.
        window_steps: steps among whose packs those of like cost are gathered.
        seed: of the shuffle.
        epoch: each is shuffled afresh.

    Returns:
        ceil(P / S) * S packs.
    """
    count = len(packing)
    steps = -(-count // slots)
    # The stream's last packs, not the cheapest of all, make up the unfilled step.
    whole = count // slots
    rows = _like_costs(cost[: whole * slots], slots, window_steps)
    step_window = np.arange(whole) // window_steps
    rows = rows[np.lexsort((random_words(whole, seed, STREAM_STEPS, epoch), step_window))]
    slot_key = random_words(whole * slots, seed, STREAM_SLOTS, epoch).reshape(whole, slots)
    rows = np.take_along_axis(rows, np.argsort(slot_key, axis=1, kind="stable"), axis=1)
    table = np.full(steps * slots, -1, np.int64)
    table[: whole * slots] = rows.ravel()
    table[whole * slots : count] = np.arange(whole * slots, count)
    return packing.reorder(table)


def _like_costs(cost: Int64s, slots: int, window_steps: int) -> Int64s:
    """int64 [steps, slots]: packs sorted by cost inside each window of steps."""
    window = slots * window_steps
    parts = []
    for begin, end in (
        (0, len(cost) // window * window),
        (len(cost) // window * window, len(cost)),
    ):
        if begin < end:
            rows = cost[begin:end].reshape(-1, min(window, end - begin))
            order = np.argsort(rows, axis=1, kind="stable")
            order += np.arange(begin, end, rows.shape[1])[:, None]
            parts.append(order.reshape(-1, slots))
    return np.concatenate(parts) if parts else np.zeros((0, slots), np.int64)


def enough_window_steps(cost: Int64s, slots: int) -> int:
    """The smallest power of two, at most 64, with which S ranks lose at most 2 % by imbalance.

    Args:
        cost: int64 [P] of packs in stream order, any unit; the first million are looked at.
        slots: packs of a step, S.
    """
    whole = min(len(cost), max(slots * MOST_WINDOW_STEPS, ENOUGH_PACKS)) // slots
    cost = cost[: whole * slots]
    window_steps = 1
    while window_steps < MOST_WINDOW_STEPS:
        steps = cost[_like_costs(cost, slots, window_steps)]
        # In integers: a choice that a plan depends on must not hang on the last bit of a float.
        lasts, works = int(steps.max(axis=1, initial=0).sum()) * slots, int(steps.sum())
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
