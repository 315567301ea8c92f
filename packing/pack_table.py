"""The tables `packs` and `runs` of an arrangement."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packing.arrange import Arrangement
from packing.errors import PlanError
from packing.occurrences import number_occurrences
from packing.plan import PACKS_SCHEMA, RUNS_SCHEMA
from packing.plan_header import PackShape
from packing.spans import Int64s, Spans


def pack_table(spans: Spans, arrangement: Arrangement, slots_per_step: int) -> pa.Table:
    """One row per slot, columns as in `packing.plan`.

    Raises:
        PlanError: more than 2^31 - 1 planned occurrences; plan fewer epochs at a time.
    """
    packing = arrangement.packing
    if len(packing.items) >= 1 << 31:
        raise PlanError(
            f"{len(packing.items)} planned spans: one plan holds fewer than 2^31; plan fewer epochs"
        )
    rows = np.arange(len(packing), dtype=np.int64)
    offsets = pa.array(packing.offsets.astype(np.int32))

    def column(values: NDArray[Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(offsets, pa.array(values))

    of_span = {
        name: column(getattr(spans, name)[packing.items])
        for name in PACKS_SCHEMA.names
        if hasattr(spans, name) and name != "tokens"
    }
    return pa.table(
        {
            "pack": rows,
            "epoch": arrangement.epoch.astype(np.int32),
            "step": rows // slots_per_step,
            "slot": (rows % slots_per_step).astype(np.int32),
            "span_id": column(packing.items),
            "occurrence": column(number_occurrences(packing.items, arrangement.epoch_bounds())),
            **of_span,
            "tokens": packing.sum(spans.tokens).astype(np.int32),
            "sum_sq": packing.sum_of_squares(spans.tokens),
        },
        schema=PACKS_SCHEMA,
    )


def runs_table(spans: Spans, runs: Int64s, source: Int64s | None) -> pa.Table:
    """One row per run of the source spans, columns as in `packing.plan`.

    Args:
        spans: the source spans.
        runs: int64 [n], ascending run of each; none crosses an episode.
        source: int64 [E], source of each episode in a mixture, or None.
    """
    begin = np.flatnonzero(np.diff(runs, prepend=-1))
    episode = spans.episode[begin]
    return pa.table(
        {
            "episode": episode,
            "source": (np.zeros(len(begin)) if source is None else source[episode]).astype(
                np.int32
            ),
            "num_spans": np.diff(begin, append=len(spans)).astype(np.int32),
            "tokens": np.add.reduceat(spans.tokens, begin, dtype=np.int64),
        },
        schema=RUNS_SCHEMA,
    )


def pack_shape(spans: Spans, arrangement: Arrangement) -> PackShape:
    """The most that any pack and any span holds."""
    packing = arrangement.packing
    return PackShape(
        spans=int(packing.sizes.max()),
        images=int(packing.sum(spans.images).max()),
        states=int(packing.sum(spans.observed).max()),
        action_queries=int(packing.sum(spans.action_tokens).max()),
        prefix_tokens=int(packing.sum(spans.prefix_tokens).max()),
        span_prefix_tokens=int(spans.prefix_tokens.max()),
        span_action_tokens=int(spans.action_tokens.max()),
        span_tokens=int(spans.tokens.max()),
    )
