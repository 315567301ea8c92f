"""Counting what became of spans: the audit per dataset, and the shares of a mixture's sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from packing.audit import SourceAudit, SourceShare
from packing.mixture import PlannedMixture
from packing.quotas import wished_shares
from packing.seeded import Indices
from packing.spans import EpisodeSteps, Int64s, SpanSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Tally:
    """Occurrences of n spans by their owner (one of G datasets or sources), all int64 [G].

    Attributes:
        planned: occurrences.
        tokens: of these.
        repeated: occurrences beyond the first of an epoch, summed over epochs.
        omitted: spans that an epoch leaves out, summed over epochs.
        never: spans that no epoch has.
        most_in_epoch: how often the most frequent span occurs in an epoch.
    """

    planned: Int64s
    tokens: Int64s
    repeated: Int64s
    omitted: Int64s
    never: Int64s
    most_in_epoch: Int64s

    @classmethod
    def of(
        cls, items: Indices, epoch_bounds: Int64s, owner: Int64s, groups: int, tokens: Int64s
    ) -> Self:
        """Count.

        Args:
            items: int32 or int64 [items], the planned spans in the order of consumption.
            epoch_bounds: int64 [epochs + 1], where each epoch begins in it, and the end.
            owner: int64 [n], group of each span.
            groups: G.
            tokens: int64 [n], of each span.
        """
        planned, of_tokens, repeated, omitted, most = (np.zeros(groups, np.int64) for _ in range(5))
        met = np.zeros(len(owner), np.bool_)
        for first, stop in pairwise(epoch_bounds.tolist()):
            counts = np.bincount(items[first:stop], minlength=len(owner))
            np.add.at(planned, owner, counts)
            np.add.at(of_tokens, owner, counts * tokens)
            np.add.at(repeated, owner, np.maximum(counts - 1, 0))
            np.add.at(omitted, owner, counts == 0)
            np.maximum.at(most, owner, counts)
            met |= counts > 0
        return cls(
            planned=planned,
            tokens=of_tokens,
            repeated=repeated,
            omitted=omitted,
            never=np.bincount(owner[~met], minlength=groups),
            most_in_epoch=most,
        )


def audit_spans(
    made: SpanSet,
    steps: EpisodeSteps,
    tally: Tally,
    dataset: Int64s,
    names: Sequence[str],
    unscored: Int64s,
    *,
    mixed: bool,
) -> tuple[SourceAudit, ...]:
    """Count, per dataset, what became of episodes and spans.

    Args:
        made: spans and refusals.
        steps: the episodes they were made of.
        tally: of the finished arrangement, by dataset.
        dataset: int64 [E], dataset of each episode.
        names: of the datasets.
        unscored: int64 [E], action steps of each episode that are invalid.
        mixed: a mixture was asked for, which may omit spans.
    """
    of_span = dataset[made.spans.episode]

    def per_dataset(owner: Int64s, values: Int64s) -> list[int]:
        total = np.zeros(len(names), np.int64)
        np.add.at(total, owner, values)
        return [int(value) for value in total]

    episodes = per_dataset(dataset, np.ones(len(dataset), np.int64))
    of_steps = per_dataset(dataset, steps.num_steps)
    count = per_dataset(of_span, np.ones(len(made.spans), np.int64))
    tokens = per_dataset(of_span, made.spans.tokens.astype(np.int64))
    split = per_dataset(dataset, made.split)
    past_end = np.maximum(made.spans.action_stop - steps.num_steps[made.spans.episode], 0)
    without_loss = np.add(per_dataset(dataset, unscored), per_dataset(of_span, past_end)).tolist()
    masked_in = np.searchsorted(steps.step_offsets, made.masked, side="right") - 1
    masked = per_dataset(dataset[masked_in], np.ones(len(masked_in), np.int64))
    refused = {reason: per_dataset(dataset, counts) for reason, counts in made.refused.items()}
    return tuple(
        SourceAudit(
            dataset=name,
            episodes=episodes[number],
            steps=of_steps[number],
            spans=count[number],
            tokens=tokens[number],
            planned=int(tally.planned[number]),
            repeated=int(tally.repeated[number]),
            omitted=int(tally.omitted[number]),
            split=split[number],
            refused={reason: counts[number] for reason, counts in refused.items()},
            unscored=without_loss[number],
            masked=masked[number],
            dropped=0 if mixed else int(tally.omitted[number]),
        )
        for number, name in enumerate(names)
    )


def audit_shares(mixture: PlannedMixture, tally: Tally, epochs: int) -> tuple[SourceShare, ...]:
    """What each source was asked for, and what it gives.

    Args:
        mixture: with the sources' tokens of an epoch.
        tally: of the finished arrangement, by source.
        epochs: of the plan.
    """
    asked = sum(source.epoch_tokens for source in mixture.sources)
    got = int(tally.tokens.sum())
    wished = wished_shares(mixture.asked, mixture.sources)
    return tuple(
        SourceShare(
            source=source.name,
            episodes=source.episodes,
            spans=source.spans,
            tokens=source.tokens,
            asked_tokens=source.epoch_tokens * epochs,
            got_tokens=int(tally.tokens[number]),
            wished_share=float(wished[number]),
            asked_share=source.epoch_tokens / asked,
            got_share=int(tally.tokens[number]) / got,
            planned=int(tally.planned[number]),
            repeated=int(tally.repeated[number]),
            omitted=int(tally.omitted[number]),
            never=int(tally.never[number]),
            most_in_epoch=int(tally.most_in_epoch[number]),
        )
        for number, source in enumerate(mixture.sources)
    )
