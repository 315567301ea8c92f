"""Measuring an arrangement: the quality and the audit that go into a plan's header."""

from collections.abc import Sequence

import numpy as np

from packing.arrange import Arrangement
from packing.audit import SourceAudit
from packing.balance import max_over_mean, pack_costs
from packing.layout import TokenLayout
from packing.quality import PlanQuality
from packing.settings import PlanSettings
from packing.shuffle_quality import episode_diversity, near_duplicates
from packing.spans import EpisodeSteps, Int64s, Spans, SpanSet


def measure_quality(
    spans: Spans,
    runs: Int64s,
    arrangement: Arrangement,
    settings: PlanSettings,
    layout: TokenLayout,
    num_cameras: int,
) -> PlanQuality:
    """All figures of `PlanQuality`."""
    packing, slots = arrangement.packing, settings.slots_per_step
    items = packing.items
    step = arrangement.span_slots() // slots
    episode = spans.episode[items].astype(np.int64)
    tokens = packing.sum(spans.tokens)
    cost = pack_costs(packing, spans, settings.cost)
    full = np.repeat((packing.sizes.reshape(-1, slots) > 0).all(axis=1), slots)
    rows, images = len(spans), int(spans.observed.max()) * num_cameras
    padded = int(spans.action_tokens.max()) + int(
        layout.prefix_tokens(*_padded_row(spans, layout, images))[0]
    )
    reads = len(np.unique(step * (int(episode.max()) + 1) + episode))
    return PlanQuality(
        padding=1.0 - float(tokens.sum()) / (len(packing) * settings.budget_tokens),
        empty_slots=int((packing.sizes == 0).sum()),
        max_over_mean={
            world: max_over_mean(cost[full], slots, world) for world in _world_sizes(slots)
        },
        shuffle=episode_diversity(step, episode, settings.seed),
        near_duplicates=near_duplicates(step, episode, spans.stop[items].astype(np.int64)),
        bias_over_random=_bias(spans, arrangement),
        tokens_over_padded=float(spans.tokens.sum(dtype=np.int64)) / (rows * padded),
        images_over_padded=(
            float(spans.images.sum(dtype=np.int64)) / (rows * images) if images else 1.0
        ),
        reads_per_span=reads / len(items),
        run_steps=_run_steps(runs, items[: len(spans)], step[: len(spans)]),
    )


def _padded_row(
    spans: Spans, layout: TokenLayout, images: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Text, images and observed steps of the row that any span fits into, int32 [1] each."""
    text = (
        spans.prefix_tokens
        - layout.extra_tokens
        - layout.image_tokens * spans.images
        - layout.state_tokens * spans.observed
    )
    longest = (int(text.max()), images, int(spans.observed.max()))
    first, second, third = (np.array([value], np.int32) for value in longest)
    return first, second, third


def _world_sizes(slots: int) -> list[int]:
    """1, 2, 4, ... and S itself."""
    return sorted({1 << k for k in range(slots.bit_length()) if 1 << k <= slots} | {slots})


def _run_steps(runs: Int64s, items: Int64s, step: Int64s) -> int:
    """Steps from the first to the last use of a run, both included, that 90 % of runs need.

    Args:
        runs: int64 [n], ascending run of each span.
        items: int64 [n], spans of the first epoch in the order of consumption.
        step: int64 [n], their steps.
    """
    of_span = np.empty(len(runs), np.int64)
    of_span[items] = step
    begin = np.flatnonzero(np.diff(runs, prepend=-1))
    used = np.maximum.reduceat(of_span, begin) - np.minimum.reduceat(of_span, begin) + 1
    return int(np.sort(used)[(len(used) - 1) * 9 // 10])


def _bias(spans: Spans, arrangement: Arrangement) -> float:
    """Variance of the packs' mean span length, over what random packs of the same sizes have."""
    packing = arrangement.packing
    filled = packing.sizes > 0
    tokens = spans.tokens
    variance = float(tokens.var(dtype=np.float64))
    if variance == 0.0:
        return 1.0
    sizes = packing.sizes[filled]
    means = packing.sum(tokens)[filled] / sizes
    deviation = means - float(tokens.mean(dtype=np.float64))
    return float((deviation**2).mean() / (variance / sizes).mean())


def audit_spans(
    made: SpanSet,
    steps: EpisodeSteps,
    arrangement: Arrangement,
    epochs: int,
    dataset: Int64s,
    names: Sequence[str],
    unscored: Int64s,
) -> tuple[SourceAudit, ...]:
    """Count, per dataset, what became of episodes and spans.

    Args:
        made: spans and refusals.
        steps: the episodes they were made of.
        arrangement: the finished arrangement.
        epochs: of the plan.
        dataset: int64 [E], dataset of each episode.
        names: of the datasets.
        unscored: int64 [E], action steps of each episode that the loss leaves out.
    """
    spans = made.spans
    of_span = dataset[spans.episode]
    occurrences = np.bincount(arrangement.packing.items, minlength=len(spans))

    def per_dataset(owner: Int64s, values: Int64s) -> list[int]:
        return [int(values[owner == number].sum()) for number in range(len(names))]

    episodes = per_dataset(dataset, np.ones(len(dataset), np.int64))
    of_steps = per_dataset(dataset, steps.num_steps)
    count = per_dataset(of_span, np.ones(len(spans), np.int64))
    tokens = per_dataset(of_span, spans.tokens.astype(np.int64))
    planned = per_dataset(of_span, occurrences)
    repeated = per_dataset(of_span, np.maximum(occurrences - epochs, 0))
    omitted = per_dataset(of_span, np.maximum(epochs - occurrences, 0))
    split = per_dataset(dataset, made.split)
    without_loss = per_dataset(dataset, unscored)
    refused = {reason: per_dataset(dataset, counts) for reason, counts in made.refused.items()}
    return tuple(
        SourceAudit(
            dataset=name,
            episodes=episodes[number],
            steps=of_steps[number],
            spans=count[number],
            tokens=tokens[number],
            planned=planned[number],
            repeated=repeated[number],
            omitted=omitted[number],
            split=split[number],
            refused={reason: counts[number] for reason, counts in refused.items()},
            unscored=without_loss[number],
            dropped=omitted[number],
        )
        for number, name in enumerate(names)
    )
