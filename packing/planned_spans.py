"""The spans of a plan, read back from its tables."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from packing.packs import Packing
from packing.plan import PACKS_SCHEMA, Plan
from packing.spans import Int64s, Spans


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedSpans:
    """The m distinct spans that occur in a plan, and where they occur.

    Attributes:
        ids: int64 [m], their span ids, ascending; without a mixture that is range(m).
        spans: the spans, each as it occurs first.
        packing: the slots of all epochs as packs over `spans`.
    """

    ids: Int64s
    spans: Spans
    packing: Packing

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Read them."""
        span_id = flat(plan.packs, "span_id")
        ids, first, items = np.unique(span_id, return_index=True, return_inverse=True)
        names = [name for name in Spans.__dataclass_fields__ if name in PACKS_SCHEMA.names]
        sizes = pc.list_value_length(plan.packs["span_id"]).to_numpy().astype(np.int64)
        return cls(
            ids=ids,
            spans=Spans(**{name: flat(plan.packs, name)[first].astype(np.int32) for name in names}),
            packing=Packing(
                items=items.reshape(-1), offsets=np.concatenate([[0], np.cumsum(sizes)])
            ),
        )


def source_spans(plan: Plan) -> Spans:
    """The spans that occur in a plan, by their id: all, unless a mixture omits some."""
    return PlannedSpans.of(plan).spans


def flat(packs: pa.Table, name: str) -> Int64s:
    """A list column end to end, int64 [items]."""
    values: Int64s = pc.list_flatten(packs[name]).to_numpy().astype(np.int64)
    return values
