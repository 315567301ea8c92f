"""Plans of any size over a small lake: a real plan's steps repeated as further epochs.

To plan ten million spans would take a lake of a hundred thousand episodes. What a loader does with
a plan depends on its tables alone, and those of a repeated plan are as large: every repetition is
an epoch of its own, with its own rows of `episodes`, which lie at the same addresses.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.store import Lake
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import PACKS_SCHEMA, Plan
from packing.window_spans import WindowSpans

_BUDGET = 512


def large_plan(lake: Lake, spans: int, *, slots_per_step: int = 8) -> Plan:
    """A sealed plan with at least so many occurrences of spans.

    Args:
        lake: any; all its episodes are planned, as windows of one step.
        spans: occurrences; at least those of one epoch.
        slots_per_step: packs of a step.
    """
    base = make_plan(
        lake,
        spans=WindowSpans(horizon=4),
        layout=TokenLayout(image_tokens=4),
        budget_tokens=_BUDGET,
        slots_per_step=slots_per_step,
    )
    return repeated(base, -(-spans // base.header.num_spans))


def repeated(plan: Plan, times: int) -> Plan:
    """The plan of one epoch as a sealed plan of `times` epochs that are alike."""
    segment = plan.header.segments[0]
    epochs = replace(segment.settings, epochs=times)
    header = replace(
        plan.header,
        segments=(replace(segment, num_steps=times * segment.num_steps, settings=epochs),),
    )
    packs, episodes = plan.packs.combine_chunks(), plan.episodes.combine_chunks()
    repeats = [_epoch(packs, number, plan, episodes.num_rows) for number in range(times)]
    return replace(
        plan,
        header=header,
        packs=pa.concat_tables(repeats).combine_chunks(),
        episodes=pa.concat_tables([episodes] * times).combine_chunks(),
    ).sealed()


def _epoch(packs: pa.Table, number: int, plan: Plan, episodes: int) -> pa.Table:
    """The rows of `packs` as those of epoch `number`."""

    def moved(name: str, by: int) -> pa.Array:
        return pc.add(packs[name], pa.scalar(by, PACKS_SCHEMA.field(name).type))

    lists = packs["episode"].combine_chunks()
    rows = pa.array(lists.values.to_numpy() + np.int32(number * episodes))
    columns = {
        "pack": moved("pack", number * packs.num_rows),
        "epoch": moved("epoch", number),
        "step": moved("step", number * plan.num_steps),
        "episode": pa.ListArray.from_arrays(lists.offsets, rows),
    }
    return pa.table(
        [columns.get(field.name, packs[field.name]) for field in PACKS_SCHEMA], schema=PACKS_SCHEMA
    )
