"""Re-deriving a plan's promises from its tables alone."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.bounds import certify
from packing.errors import PlanError
from packing.packs import Packing, loads_of
from packing.plan import PACKS_SCHEMA, Plan
from packing.spans import Int64s, Spans


def source_spans(plan: Plan) -> Spans:
    """The plan's source spans by their id, taken from its first epoch."""
    first = plan.packs.filter(pc.equal(plan.packs["epoch"], 0))
    order = np.argsort(_flat(first, "span_id"), kind="stable")
    names = [f for f in Spans.__dataclass_fields__ if f in PACKS_SCHEMA.names]
    return Spans(**{name: _flat(first, name)[order].astype(np.int32) for name in names})


def plan_packing(plan: Plan) -> Packing:
    """The slots of all epochs as packs over `source_spans`."""
    lengths = pc.list_value_length(plan.packs["span_id"]).to_numpy().astype(np.int64)
    return Packing(
        items=_flat(plan.packs, "span_id"), offsets=np.concatenate([[0], np.cumsum(lengths)])
    )


def verify_plan(plan: Plan) -> list[str]:
    """Check every promise of a plan; returns what was checked, one line each.

    Raises:
        PlanError: the first promise that is broken, with the pack or span.
    """
    header = plan.header
    if plan.content_hash() != header.plan_hash:
        raise PlanError(f"plan {header.plan_hash}: content does not match the hash")
    packing = plan_packing(plan)
    epoch = plan.packs["epoch"].to_numpy()
    _check_order(plan, epoch)
    for number in range(header.epochs):
        items = np.repeat(epoch, packing.sizes) == number
        counts = np.bincount(packing.items[items], minlength=header.num_spans)
        _require(counts == 1, "span_id", f"occurs not exactly once in epoch {number}")
    spans = source_spans(plan)
    _check_spans(plan, spans)
    for name in Spans.__dataclass_fields__:
        same = _flat(plan.packs, name) == getattr(spans, name)[packing.items]
        _require(same, f"occurrence: {name}", "differs between epochs")
    loads = loads_of(spans, header.settings)
    for load in loads:
        _require(packing.sum(load.per_span) <= load.limit, "pack", f"is over its {load.name}")
    _require(plan.packs["tokens"].to_numpy() == packing.sum(spans.tokens), "pack", "tokens")
    squares = packing.sum(spans.tokens.astype(np.int64) ** 2)
    _require(plan.packs["sum_sq"].to_numpy() == squares, "pack", "sum_sq")
    used = max(int((packing.sizes[epoch == e] > 0).sum()) for e in range(header.epochs))
    certificate = certify(loads, used)
    if certificate != header.certificate:
        raise PlanError(f"certificate is {header.certificate}, its spans give {certificate}")
    lost = sum(audit.omitted + audit.dropped + audit.cut for audit in header.audit)
    if lost:
        raise PlanError(f"the audit counts {lost} spans omitted, dropped or cut")
    return [
        f"content matches hash {header.plan_hash}",
        f"{header.num_spans} spans, each exactly once in each of {header.epochs} epochs",
        f"no pack over its {', '.join(load.name for load in loads)}; lengths as the layout says",
        f"{certificate.packs} packs over a bound of {certificate.bound} ({certificate.binding})",
        "nothing omitted, dropped or cut",
    ]


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
    text_tokens = pc.list_value_length(plan.texts["token_ids"]).to_numpy()[spans.text]
    inside = (
        (spans.start >= 0)
        & (spans.start < spans.stop)
        & (spans.stop <= num_steps)
        & (spans.action_start >= 0)
        & (spans.action_start < spans.action_stop)
        & (spans.action_stop <= num_steps)
    )
    _require(inside, "span", "is not inside its episode")
    _require(spans.images <= spans.observed * cameras, "span", "has images of absent cameras")
    prefix = layout.prefix_tokens(text_tokens, spans.images, spans.observed)
    _require(spans.prefix_tokens == prefix, "span", "prefix tokens are not the layout's")
    queries = layout.action_tokens * (spans.action_stop - spans.action_start)
    _require(spans.action_tokens == queries, "span", "action tokens are not the layout's")


def _require(holds: NDArray[np.bool_], what: str, broken: str) -> None:
    if not holds.all():
        raise PlanError(f"{what} {int(np.argmin(holds.ravel()))}: {broken}")


def _flat(packs: pa.Table, name: str) -> Int64s:
    values: Int64s = pc.list_flatten(packs[name]).to_numpy().astype(np.int64)
    return values
