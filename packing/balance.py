"""Steps of equal cost on every rank.

A step lasts as long as its costliest rank, and attention makes cost uneven among packs of equal
token count. Packs of like cost are therefore put into the same step: inside a window of some steps
packs are sorted by cost and cut into steps of S, and these steps, whose costs differ, are shuffled
inside the window. The window is what keeps the locality of the draw.
"""

import numpy as np

from packing.packs import Packing
from packing.seeded import STREAM_SLOTS, STREAM_STEPS, random_words
from packing.settings import PlanSettings
from packing.spans import Int64s


def balance(packing: Packing, cost: Int64s, settings: PlanSettings, epoch: int) -> Packing:
    """Order packs into steps of S slots; the last step is filled up with empty packs.

    Args:
        packing: P packs in stream order.
        cost: int64 [P], any unit.
        settings: `slots_per_step`, `balance_window_steps`, `seed`.
        epoch: of the shuffle.

    Returns:
        ceil(P / S) * S packs.
    """
    slots = settings.slots_per_step
    count = len(packing)
    steps = -(-count // slots)
    # The stream's last packs, not the cheapest of all, make up the unfilled step.
    whole = count // slots
    window = np.arange(whole * slots) // (slots * settings.balance_window_steps)
    by_cost = np.lexsort((cost[: whole * slots], window))
    step_window = np.arange(whole) // settings.balance_window_steps
    step_key = random_words(whole, settings.seed, STREAM_STEPS, epoch)
    step_order = np.lexsort((step_key, step_window))
    rows = by_cost.reshape(whole, slots)[step_order]
    slot_key = random_words(whole * slots, settings.seed, STREAM_SLOTS, epoch).reshape(whole, slots)
    rows = np.take_along_axis(rows, np.argsort(slot_key, axis=1, kind="stable"), axis=1)
    table = np.full(steps * slots, -1, np.int64)
    table[: whole * slots] = rows.ravel()
    table[whole * slots : count] = np.arange(whole * slots, count)
    return packing.reorder(table)


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
    return float(per_rank.max(axis=1).sum() * world_size / per_rank.sum())
