"""Plans of any size over a small lake: a plan's steps repeated as further epochs.

To plan ten million spans would take a lake of a hundred thousand episodes. What a loader does with
a plan depends on its tables alone, and those of a repeated plan are as large: every repetition is
an epoch of its own, with its own rows of `episodes`, which lie at the same addresses.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.create import create_lake
from lake.episode import Episode, Provenance
from lake.spec import FeatureSpec, Spec
from lake.store import Lake
from lake.writer import EpisodeWriter
from packing.make_plan import make_plan
from packing.plan import PACKS_SCHEMA, Plan
from packing.window_spans import WindowSpans

_EPISODES = 20
_STEPS = 100


def signals_lake(folder: Path) -> Lake:
    """A new lake of 20 episodes with 100 steps of state and action each, and no camera."""
    lake = create_lake(folder / "signals.lake")
    features = tuple(
        FeatureSpec(name=name, source_name=name, dtype="float32", shape=(4,), role=name)
        for name in ("state", "action")
    )
    with EpisodeWriter(lake) as writer:
        for number in range(_EPISODES):
            writer.add(_episode(number, Spec(features=features, cameras=())))
    lake.refresh()
    return lake


def _episode(number: int, spec: Spec) -> Episode:
    rng = np.random.default_rng(number)
    return Episode(
        episode_id=f"signals/{number:06d}",
        ingest_key=hashlib.sha256(f"{number}".encode()).hexdigest(),
        source="signals",
        dataset="signals",
        embodiment="none",
        spec=spec,
        fps=10.0,
        timestamps_ns=np.arange(_STEPS, dtype=np.int64) * 100_000_000,
        features={
            feature.name: rng.normal(size=(_STEPS, 4)).astype(np.float32)
            for feature in spec.features
        },
        cameras={},
        provenance=Provenance(
            format="synthetic", files=(), locator=f"episode {number}", reader="bench/1"
        ),
    )


def large_plan(
    lake: Lake,
    *,
    spans: int = 1,
    packs: int = 1,
    budget_tokens: int = 512,
    slots_per_step: int = 8,
) -> Plan:
    """A sealed plan with at least so many occurrences of spans, and so many packs.

    Args:
        lake: any; all its episodes are planned, as windows with chunks of 4 actions.
        spans: occurrences.
        packs: over all steps.
        budget_tokens: of a pack.
        slots_per_step: packs of a step.
    """
    base = make_plan(
        lake,
        spans=WindowSpans(horizon=4),
        budget_tokens=budget_tokens,
        slots_per_step=slots_per_step,
    )
    epochs = max(-(-spans // base.header.num_spans), -(-packs // base.packs.num_rows))
    return repeated(base, epochs)


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
