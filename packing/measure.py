"""Measuring an arrangement: the quality that goes into a plan's header."""

import numpy as np
from numpy.typing import NDArray

from packing.arrange import Arrangement
from packing.balance import max_over_mean, pack_costs
from packing.layout import TokenLayout
from packing.occurrences import number_occurrences
from packing.packs import Packing
from packing.padded_rows import padded_row
from packing.quality import PlanQuality
from packing.settings import PlanSettings
from packing.shuffle_quality import episode_diversity, near_duplicates
from packing.spans import Int32s, Int64s, Spans


def measure_quality(
    spans: Spans,
    runs: Int64s,
    arrangement: Arrangement,
    settings: PlanSettings,
    layout: TokenLayout,
    num_cameras: int,
    unused_text: NDArray[np.float64] | None = None,
) -> PlanQuality:
    """All figures of `PlanQuality`.

    Args:
        spans: source spans.
        runs: int64 [n], run of each.
        arrangement: of their occurrences.
        settings: of the plan.
        layout: of the plan.
        num_cameras: cameras that the plan uses.
        unused_text: float64 [E], planned text tokens that a span of each episode leaves;
            None where it leaves none.
    """
    packing, slots = arrangement.packing, settings.slots_per_step
    items = packing.items
    step = arrangement.span_slots() // slots
    episode = spans.episode[items].astype(np.int64)
    tokens = packing.sum(spans.tokens)
    cost = pack_costs(packing, spans, settings.cost)
    full = np.repeat((packing.sizes.reshape(-1, slots) > 0).all(axis=1), slots)
    rows, room = len(items), len(packing) * settings.budget_tokens
    padded, images = padded_row(spans, layout, num_cameras)
    reads = len(np.unique(step * (int(episode.max()) + 1) + episode))
    return PlanQuality(
        padding=1.0 - float(tokens.sum()) / room,
        state_text_padding=0.0 if unused_text is None else float(unused_text[episode].sum()) / room,
        empty_slots=int((packing.sizes == 0).sum()),
        max_over_mean={
            world: max_over_mean(cost[full], slots, world) for world in _world_sizes(slots)
        },
        shuffle=episode_diversity(step, episode, settings.seed),
        near_duplicates=near_duplicates(step, episode, spans.stop[items].astype(np.int64)),
        bias_over_random=length_bias(packing, spans.tokens),
        tokens_over_padded=float(tokens.sum()) / (rows * padded),
        images_over_padded=(
            float(packing.sum(spans.images).sum()) / (rows * images) if images else 1.0
        ),
        reads_per_span=reads / len(items),
        run_steps=run_steps(runs, arrangement, slots),
    )


def _world_sizes(slots: int) -> list[int]:
    """1, 2, 4, ... and S itself."""
    return sorted({1 << k for k in range(slots.bit_length()) if 1 << k <= slots} | {slots})


def run_steps(runs: Int64s, arrangement: Arrangement, slots: int) -> int:
    """Steps from the first to the last use of a run, both included, that 90 % of runs need.

    In the first epoch; a run that occurs again is another run. One that lies across the wrap of the
    draw's clock is used at the begin and at the end of the epoch, and nobody keeps it in between:
    where more than half the epoch lies between two uses, it counts as two.

    Args:
        runs: int64 [n], ascending run of each span.
        arrangement: the finished arrangement.
        slots: slots of a step.
    """
    first_epoch = arrangement.epoch_bounds()[:2]
    items = arrangement.packing.items[: first_epoch[1]]
    step = arrangement.span_slots()[: len(items)] // slots
    time = number_occurrences(items, first_epoch).astype(np.int64)
    use = runs[items] + time * (int(runs[-1]) + 1)
    order = np.lexsort((step, use))
    use, step = use[order], step[order]
    far = np.diff(step, prepend=0) > (int(step.max()) + 1) // 2
    begin = np.flatnonzero((np.diff(use, prepend=-1) != 0) | far)
    last = np.append(begin[1:], len(order)) - 1
    used = step[last] - step[begin] + 1
    return int(np.sort(used)[(len(used) - 1) * 9 // 10])


def length_bias(packing: Packing, tokens: Int32s) -> float:
    """Variance of the packs' mean span length, over what random packs of the same sizes have.

    Args:
        packing: packs, empty ones left out of account.
        tokens: int32 [n], length of each span that its items number.
    """
    # Of the planned occurrences: a mixture changes which lengths are usual.
    planned = tokens[packing.items]
    variance = float(planned.var(dtype=np.float64))
    if variance == 0.0:
        return 1.0
    filled = packing.sizes > 0
    sizes = packing.sizes[filled]
    means = packing.sum(tokens)[filled] / sizes
    deviation = means - float(planned.mean(dtype=np.float64))
    return float((deviation**2).mean() / (variance / sizes).mean())
