"""Re-deriving a plan's promises from its tables alone."""

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.certificate import Certificate
from packing.errors import PlanError
from packing.occurrences import number_occurrences
from packing.plan import Plan
from packing.plan_header import PlanSegment
from packing.planned_spans import PlannedSpans, flat
from packing.spans import Spans
from packing.verify_segment import check_audit, check_counts, check_limits, stretch_of


def verify_plan(plan: Plan) -> list[str]:
    """Check every promise of a plan; returns what was checked, one line each.

    Raises:
        PlanError: the first promise that is broken, with the pack or span.
    """
    header = plan.header
    if plan.content_hash() != header.plan_hash:
        raise PlanError(f"plan {header.plan_hash}: content does not match the hash")
    _check_order(plan, plan.packs["epoch"].to_numpy())
    planned = PlannedSpans.of(plan)
    stretches = [stretch_of(plan, n, planned) for n in range(len(header.segments))]
    for stretch in stretches:
        check_counts(plan, stretch, planned)
    _check_occurrences(plan, planned)
    spans, packing = planned.spans, planned.packing
    _check_spans(plan, spans)
    for name in Spans.__dataclass_fields__:
        same = flat(plan.packs, name) == getattr(spans, name)[packing.items]
        _require(same, f"occurrence: {name}", "differs between occurrences")
    _require(plan.packs["tokens"].to_numpy() == packing.sum(spans.tokens), "pack", "tokens")
    squares = packing.sum_of_squares(spans.tokens)
    _require(plan.packs["sum_sq"].to_numpy() == squares, "pack", "sum_sq")
    certificates = []
    for stretch in stretches:
        certificates.append(check_limits(stretch, planned))
        check_audit(plan, stretch, planned)
    return [f"content matches hash {header.plan_hash}"] + [
        line
        for segment, certificate in zip(header.segments, certificates, strict=True)
        for line in _promises(segment, certificate)
    ]


def _promises(segment: PlanSegment, certificate: Certificate) -> list[str]:
    """What a segment keeps, in words."""
    limits = ", ".join(certificate.bounds)
    if segment.mixture is None:
        spans = f"{segment.num_spans} spans, each exactly once in each of {segment.epochs} epochs"
        lost = "nothing omitted, dropped or cut"
    else:
        planned = sum(share.planned for share in segment.shares)
        spans = (
            f"{planned} occurrences of {segment.num_spans} spans in {segment.epochs} epochs, each"
            " as often as the mixture says"
        )
        lost = "nothing repeated or omitted beyond the mixture, nothing dropped or cut"
    return [
        spans,
        f"no pack over its {limits}; lengths as the layout says",
        f"{certificate.packs} packs over a bound of {certificate.bound} ({certificate.binding})",
        lost,
    ]


def _check_occurrences(plan: Plan, planned: PlannedSpans) -> None:
    """Occurrences are numbered from 0 in the order of consumption."""
    epoch = plan.packs["epoch"].to_numpy()
    first = np.append(np.flatnonzero(np.diff(epoch, prepend=-1)), len(epoch))
    numbers = number_occurrences(planned.packing.items, planned.packing.offsets[first])
    _require(flat(plan.packs, "occurrence") == numbers, "item", "occurrence number")


def _check_order(plan: Plan, epoch: NDArray[Any]) -> None:
    rows = np.arange(plan.packs.num_rows)
    slots = plan.header.slots_per_step
    _require(plan.packs["pack"].to_numpy() == rows, "row", "pack number")
    _require(plan.packs["step"].to_numpy() == rows // slots, "row", "step number")
    _require(plan.packs["slot"].to_numpy() == rows % slots, "row", "slot number")
    _require(np.diff(epoch) >= 0, "row", "epochs out of order")
    _require(epoch.reshape(-1, slots) == epoch[::slots, None], "row", "two epochs in one step")


def _check_spans(plan: Plan, spans: Spans) -> None:
    layout = plan.header.layout
    num_steps = plan.episodes["num_steps"].to_numpy()[spans.episode]
    cameras = pc.list_value_length(plan.episodes["cameras"]).to_numpy()[spans.episode]
    state_text = plan.header.prompt_ids.most_state_text([s.state_size for s in plan.header.specs])
    text_tokens = (
        pc.list_value_length(plan.texts["token_ids"]).to_numpy()[spans.text]
        + state_text[plan.episodes["spec"].to_numpy()[spans.episode]]
    )
    inside = (
        (spans.start >= 0)
        & (spans.start < spans.stop)
        & (spans.stop <= num_steps)
        & (spans.action_start >= 0)
        & (spans.action_start < spans.action_stop)
        & (spans.action_start < num_steps)
        & ((spans.action_stop <= num_steps) | (plan.header.span_maker.get("tail") == "pad"))
    )
    _require(inside, "span", "is not inside its episode")
    _check_action_steps(plan, spans, num_steps)
    _require(spans.images <= spans.observed * cameras, "span", "has images of absent cameras")
    prefix = layout.prefix_tokens(text_tokens, spans.images, spans.observed)
    _require(spans.prefix_tokens == prefix, "span", "prefix tokens are not the layout's")
    queries = layout.action_tokens * (spans.action_stop - spans.action_start)
    _require(spans.action_tokens == queries, "span", "action tokens are not the layout's")


def _check_action_steps(plan: Plan, spans: Spans, num_steps: NDArray[Any]) -> None:
    """Chunks are as long as their span maker makes them, and only one told so masks states."""
    maker = plan.header.span_maker
    if maker["kind"] == "window":
        rest = num_steps - spans.action_start
        full = maker["horizon"] if maker["tail"] != "short" else np.minimum(maker["horizon"], rest)
        _require(
            spans.action_stop - spans.action_start == full, "span", "acts on other steps than asked"
        )
    if not maker.get("across_gaps"):
        masked = pc.list_value_length(plan.episodes["invalid_state_steps"]).to_numpy()
        _require(masked == 0, "episode", "has masked states, and no span was told to cross them")


def _require(holds: NDArray[np.bool_], what: str, broken: str) -> None:
    if not holds.all():
        raise PlanError(f"{what} {int(np.argmin(holds.ravel()))}: {broken}")
