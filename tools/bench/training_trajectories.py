"""Whole trajectories of lognormal length, and of one length as the control."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from lake import Episode, FeatureSpec, Lake, Provenance, Spec, create_lake
from lake.writer import EpisodeWriter
from packing.layout import TokenLayout
from packing.trajectory_spans import TrajectorySpans
from tools.bench.training_packs import Packs, load_packs

SIGMA: Final = 0.8
_DIM: Final = 14  # two arms of seven joints


def lognormal_lengths(count: int, *, mean: float, longest: int) -> list[int]:
    """Steps of so many trajectories, from 8 to the longest."""
    drawn = np.random.default_rng(5).lognormal(np.log(mean) - SIGMA**2 / 2, SIGMA, count)
    lengths: list[int] = np.clip(drawn, 8, longest).astype(int).tolist()
    return lengths


def load_trajectories(folder: Path, lengths: Sequence[int], *, budget_tokens: int) -> Packs:
    """State, text and action tokens, no pictures; the action follows from the state."""
    return load_packs(
        _lake(folder, lengths),
        spans=TrajectorySpans(),
        layout=TokenLayout(state_tokens=1),
        budget_tokens=budget_tokens,
    )


def _lake(folder: Path, lengths: Sequence[int]) -> Lake:
    rng = np.random.default_rng(6)
    mixing = rng.standard_normal((_DIM, _DIM)) / np.sqrt(_DIM)
    spec = Spec(
        features=tuple(
            FeatureSpec(name=role, source_name=role, dtype="float32", shape=(_DIM,), role=role)
            for role in ("state", "action")
        )
    )
    lake = create_lake(folder)
    with EpisodeWriter(lake) as writer:
        for number, steps in enumerate(lengths):
            state = rng.standard_normal((steps, _DIM))
            signals = {"state": state, "action": np.tanh(state @ mixing)}
            writer.add(
                Episode(
                    episode_id=f"bench/{number}",
                    ingest_key=f"bench/{number}",
                    source="bench",
                    dataset="bench",
                    embodiment="two-arms",
                    spec=spec,
                    fps=50.0,
                    timestamps_ns=np.arange(steps, dtype=np.int64) * 20_000_000,
                    features={name: x.astype(np.float32) for name, x in signals.items()},
                    cameras={},
                    provenance=Provenance(
                        format="synthetic", files=(), locator=str(number), reader="bench"
                    ),
                    instruction="put the cup on the shelf",
                )
            )
    return lake
