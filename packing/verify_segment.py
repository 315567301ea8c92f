"""Checking one segment of a plan: who occurs how often, its certificate and its audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from packing.audit import SourceShare
from packing.bounds import certify
from packing.certificate import Certificate
from packing.count_spans import Tally, audit_shares
from packing.errors import PlanError
from packing.mix_sources import count_sources
from packing.mixture import PlannedMixture
from packing.occurrences import draw_occurrences
from packing.packs import loads_of
from packing.plan import Plan
from packing.plan_header import PlanSegment
from packing.planned_spans import PlannedSpans
from packing.quotas import plan_mixture
from packing.spans import Int64s


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretch:
    """A segment's part of a plan: its slots and items, its runs, and what they hold.

    Attributes:
        segment: of the header.
        name: for messages.
        slots, items: of the plan's tables.
        epoch_bounds: int64 [epochs + 1], where each epoch begins among all items, and the end.
        runs: its rows of the plan's table.
    """

    segment: PlanSegment
    name: str
    slots: slice
    items: slice
    epoch_bounds: Int64s
    runs: pa.Table


def stretch_of(plan: Plan, number: int, planned: PlannedSpans) -> Stretch:
    """The part of a plan, whose rows are in order, that is the segment of this number.

    Raises:
        PlanError: epochs or spans that are not the segment's.
    """
    segment, slots = plan.header.segments[number], plan.header.slots_per_step
    name = "" if len(plan.header.segments) == 1 else f"segment {number}: "
    rows = slice(segment.first_step * slots, (segment.first_step + segment.num_steps) * slots)
    epoch = plan.packs["epoch"].to_numpy()[rows]
    wanted = segment.first_epoch + np.arange(segment.epochs)
    if not np.array_equal(np.unique(epoch), wanted):
        raise PlanError(
            f"{name}its steps are of epochs {np.unique(epoch).tolist()}, the header says"
            f" {wanted.tolist()}"
        )
    offsets = planned.packing.offsets
    first_row = rows.start + np.append(np.searchsorted(epoch, wanted), len(epoch))
    after = np.concatenate([[0], np.cumsum(plan.runs["num_spans"].to_numpy())])
    ends = [segment.first_span, segment.first_span + segment.num_spans]
    first, stop = np.searchsorted(after, ends).tolist()
    if after[-1] != plan.header.num_spans or [after[first], after[stop]] != ends:
        raise PlanError(f"{name}its {segment.num_spans} spans are not those of the table of runs")
    return Stretch(
        segment=segment,
        name=name,
        slots=rows,
        items=slice(int(offsets[rows.start]), int(offsets[rows.stop])),
        epoch_bounds=offsets[first_row],
        runs=plan.runs.slice(first, stop - first),
    )


def _local_ids(stretch: Stretch, planned: PlannedSpans) -> Int64s:
    """int64 [items]: the spans of the segment's items, counted from its first one."""
    ids = planned.ids[planned.packing.items[stretch.items]] - stretch.segment.first_span
    foreign = (ids < 0) | (ids >= stretch.segment.num_spans)
    if foreign.any():
        span = int(ids[foreign][0]) + stretch.segment.first_span
        raise PlanError(f"{stretch.name}span_id {span} is not one of its source spans")
    return ids


def _check_runs(stretch: Stretch, planned: PlannedSpans) -> None:
    """Runs that occur hold the episodes and tokens that their spans say.

    Those that never occur have no span in the plan to be compared with.
    """
    of_span = np.repeat(np.arange(stretch.runs.num_rows), stretch.runs["num_spans"].to_numpy())
    first, stop = np.searchsorted(
        planned.ids,
        [stretch.segment.first_span, stretch.segment.first_span + stretch.segment.num_spans],
    )
    run = of_span[planned.ids[first:stop] - stretch.segment.first_span]
    spans = planned.spans
    wrong = spans.episode[first:stop] != stretch.runs["episode"].to_numpy()[run]
    if wrong.any():
        span = int(planned.ids[first:stop][wrong][0])
        raise PlanError(f"{stretch.name}span_id {span} is not of the episode of its run")
    tokens = np.zeros(stretch.runs.num_rows, np.int64)
    there = np.bincount(run, minlength=stretch.runs.num_rows)
    np.add.at(tokens, run, spans.tokens[first:stop].astype(np.int64))
    whole = there == stretch.runs["num_spans"].to_numpy()
    held = stretch.runs["tokens"].to_numpy()
    if (tokens != held)[whole].any() or (tokens > held).any():
        at = int(np.argmax(np.where(whole, tokens != held, tokens > held)))
        raise PlanError(
            f"{stretch.name}run {at} is said to hold {held[at]} tokens, its spans hold {tokens[at]}"
        )


def _check_mixture(plan: Plan, stretch: Stretch, mixture: PlannedMixture) -> None:
    """The sources are those of the runs, and their tokens what the mixture asks."""
    source = stretch.runs["source"].to_numpy()
    names = [s.name for s in mixture.sources]
    if source.min() < 0 or source.max() >= len(names):
        raise PlanError(f"{stretch.name}a run is of no source of its mixture")
    over = mixture.asked.over
    if over != "selection":
        known = plan.header.datasets if over == "dataset" else plan.header.embodiments
        of_run = plan.episodes[over].to_numpy()[stretch.runs["episode"].to_numpy()]
        wrong = np.asarray(names)[source] != np.asarray(known)[of_run]
        if wrong.any():
            raise PlanError(
                f"{stretch.name}run {int(np.argmax(wrong))} is not of the {over} of its episode"
            )
    there = count_sources(names, [s.selection_hash for s in mixture.sources], stretch.runs)
    again = plan_mixture(mixture.asked, there)
    for said, found in zip(mixture.sources, again.sources, strict=True):
        for name, value in vars(found).items():
            if getattr(said, name) != value:
                raise PlanError(
                    f"{stretch.name}the mixture says {getattr(said, name)} {name} of {said.name},"
                    f" its runs give {value}"
                )


def check_counts(plan: Plan, stretch: Stretch, planned: PlannedSpans) -> None:
    """Every span occurs as often as the mixture says, or exactly once, in each epoch.

    Raises:
        PlanError: it does not, or the mixture's numbers are not those of its runs.
    """
    segment, mixture = stretch.segment, stretch.segment.mixture
    if mixture is not None:
        _check_mixture(plan, stretch, mixture)
    drawn = draw_occurrences(stretch.runs, mixture, segment.settings.seed) if mixture else None
    ids = _local_ids(stretch, planned)
    for epoch in range(segment.epochs):
        first, stop = stretch.epoch_bounds[epoch : epoch + 2] - stretch.items.start
        counts = np.bincount(ids[first:stop], minlength=segment.num_spans)
        wanted = drawn.counts(epoch) if drawn else np.ones(segment.num_spans, np.int64)
        if np.array_equal(counts, wanted):
            continue
        at = int(np.argmax(counts != wanted))
        says = f"{wanted[at]} times as its mixture says" if drawn else "exactly once"
        raise PlanError(
            f"{stretch.name}span_id {at + segment.first_span}: occurs {counts[at]} times, not"
            f" {says}, in epoch {epoch + segment.first_epoch}"
        )


def check_audit(plan: Plan, stretch: Stretch, planned: PlannedSpans) -> None:
    """What runs are said to hold, and what the audit counts, is what the tables hold.

    Raises:
        PlanError: what is said, and what is held.
    """
    _check_runs(stretch, planned)
    segment, mixture = stretch.segment, stretch.segment.mixture
    lost = sum(audit.dropped + audit.cut for audit in segment.audit)
    if lost:
        raise PlanError(f"{stretch.name}the audit counts {lost} spans dropped or cut")
    run_of_span = np.repeat(np.arange(stretch.runs.num_rows), stretch.runs["num_spans"].to_numpy())
    tokens = np.zeros(segment.num_spans, np.int64)
    ids = _local_ids(stretch, planned)
    items = planned.packing.items[stretch.items]
    tokens[ids] = planned.spans.tokens[items]

    def tally(owner: Int64s, groups: int) -> Tally:
        bounds = stretch.epoch_bounds - stretch.items.start
        return Tally.of(ids, bounds, owner, groups, tokens)

    datasets = plan.header.datasets
    of_run = plan.episodes["dataset"].to_numpy()[stretch.runs["episode"].to_numpy()]
    by_dataset = tally(of_run[run_of_span], len(datasets))
    for audit in segment.audit:
        at = datasets.index(audit.dataset)
        said = (audit.planned, audit.repeated, audit.omitted)
        found = tuple(
            int(counts[at])
            for counts in (by_dataset.planned, by_dataset.repeated, by_dataset.omitted)
        )
        if said != found:
            raise PlanError(
                f"{stretch.name}the audit of {audit.dataset} counts {said} planned, repeated and"
                f" omitted, the tables hold {found}"
            )
    shares: Sequence[SourceShare] = ()
    if mixture is not None:
        by_source = tally(stretch.runs["source"].to_numpy()[run_of_span], len(mixture.sources))
        shares = audit_shares(mixture, by_source, segment.epochs)
        _check_shares(stretch, mixture, planned)
    if tuple(shares) != segment.shares:
        raise PlanError(f"{stretch.name}the shares are {segment.shares}, the tables give {shares}")


def _check_shares(stretch: Stretch, mixture: PlannedMixture, planned: PlannedSpans) -> None:
    """Without the rule by which spans were drawn: an epoch's tokens are off by a run at most."""
    if mixture.asked.per != "step":
        return
    sources = stretch.runs["source"].to_numpy()
    largest = np.zeros(len(mixture.sources), np.int64)
    np.maximum.at(largest, sources, stretch.runs["tokens"].to_numpy())
    of_run = np.repeat(sources, stretch.runs["num_spans"].to_numpy())
    ids = _local_ids(stretch, planned)
    tokens = planned.spans.tokens[planned.packing.items[stretch.items]].astype(np.int64)
    for epoch in range(stretch.segment.epochs):
        first, stop = stretch.epoch_bounds[epoch : epoch + 2] - stretch.items.start
        got = np.zeros(len(mixture.sources), np.int64)
        np.add.at(got, of_run[ids[first:stop]], tokens[first:stop])
        for number, source in enumerate(mixture.sources):
            if abs(int(got[number]) - source.epoch_tokens) > largest[number]:
                raise PlanError(
                    f"{stretch.name}epoch {epoch + stretch.segment.first_epoch} has {got[number]}"
                    f" tokens of {source.name}, its mixture asks for {source.epoch_tokens}"
                )


def check_limits(stretch: Stretch, planned: PlannedSpans) -> Certificate:
    """No pack is over a limit, and the certificate is that of the spans; returns it.

    Raises:
        PlanError: the pack, or both certificates.
    """
    segment = stretch.segment
    loads = loads_of(planned.spans, segment.settings)
    for load in loads:
        over = planned.packing.sum(load.per_span)[stretch.slots] > load.limit
        if over.any():
            pack = int(np.argmax(over)) + stretch.slots.start
            raise PlanError(f"pack {pack}: is over its {load.name}")
    offsets = planned.packing.offsets[stretch.slots.start : stretch.slots.stop + 1]
    filled = np.cumsum(np.concatenate([[0], np.diff(offsets) > 0]))
    certificates = []
    for epoch in range(segment.epochs):
        first, stop = stretch.epoch_bounds[epoch : epoch + 2].tolist()
        slots = np.searchsorted(offsets, [first, stop])
        items = planned.packing.items[first:stop]
        counts = np.bincount(items, minlength=len(planned.spans))
        certificates.append(certify(loads, int(np.diff(filled[slots])[0]), counts))
    certificate = max(certificates, key=lambda c: Fraction(c.packs, c.bound))
    if certificate != segment.certificate:
        raise PlanError(
            f"{stretch.name}certificate is {segment.certificate}, its spans give {certificate}"
        )
    return certificate
