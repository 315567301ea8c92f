"""Statistics of a selection: what they count, and what float32 cannot hold."""

from pathlib import Path

import numpy as np
import pytest

from lake import EpisodeWriter, Lake, create_lake
from packing.errors import PlanError
from packing.norm_stats import merge_stats
from tests.episodes import make_episode


def lake_of(folder: Path, *values: float) -> tuple[Lake, str, list[str]]:
    """A lake of an episode per value, which its state has at every step; its spec and episodes."""
    lake = create_lake(folder / "wide.lake")
    ids = []
    with EpisodeWriter(lake) as writer:
        for number, value in enumerate(values):
            episode = make_episode(number, steps=5, dtype="float64")
            features = {**episode.features, "state": np.full((5, 4), value)}
            writer.add(make_episode(number, steps=5, dtype="float64", features=features))
            ids.append(episode.episode_id)
    lake.refresh()
    return lake, episode.spec.spec_id, sorted(ids)


def test_a_value_of_one_episode_in_all(tmp_path: Path) -> None:
    lake, spec, ids = lake_of(tmp_path, 5.1, 5.1)
    (stats,) = merge_stats(lake, spec, ["state"], ids)
    value = float(np.float32(5.1))
    assert (stats.count, stats.mean, stats.std) == (10, (value,) * 4, (0.0,) * 4)
    # A constant is one number, rounded once: its bin as text is the first.
    assert (stats.q01, stats.q99) == ((value,) * 4, (value,) * 4)


@pytest.mark.parametrize("value", [1e300, -1e39])
def test_values_that_float32_cannot_hold_are_refused(tmp_path: Path, value: float) -> None:
    lake, spec, ids = lake_of(tmp_path, 0.0, value)
    with pytest.raises(PlanError, match=rf"state of spec {spec} has values up to 1e\+3.*float32"):
        merge_stats(lake, spec, ["state"], ids)
