"""Lakes made of episodes or recordings, exported, and ingested again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingest.export.lerobot.export import ExportReport, export_lerobot
from ingest.export.lerobot.plan import Choices
from ingest.export.lerobot.schema import Version
from ingest.natural_order import natural_key
from ingest.pipeline import ingest_sources
from lake import Episode, EpisodeWriter, Lake, create_lake, read_episode, visible_episodes
from tests.ingest.lerobot_data import decoded

LABELS = ("task", "instruction", "success", "split", "tags")


def lake_of(path: Path, episodes: Sequence[Episode]) -> Lake:
    """A new lake that holds the episodes."""
    lake = create_lake(path)
    with EpisodeWriter(lake) as writer:
        for episode in episodes:
            writer.add(episode)
    return lake


def ingested(source: Path, path: Path) -> Lake:
    """A new lake that holds a recording, of which nothing may be quarantined."""
    lake = create_lake(path)
    report = ingest_sources([source], lake)
    assert report.quarantined == 0
    return lake


def episodes_of(lake: Lake) -> list[Episode]:
    """All episodes, in the order of the source."""
    rows = visible_episodes(lake, ["episode_id", "source", "locator"]).to_pylist()
    rows.sort(key=lambda row: (natural_key(row["source"]), natural_key(row["locator"])))
    return [read_episode(lake, row["episode_id"]) for row in rows]


def exported(lake: Lake, path: Path, version: Version = "3.0", **arguments: Any) -> ExportReport:
    """Export with choices and other arguments by name."""
    choice = {name: arguments.pop(name) for name in ("left_out", "renamed") if name in arguments}
    return export_lerobot(lake, path, choices=Choices(version=version, **choice), **arguments)


def same_episode(a: Episode, b: Episode, *, but: Sequence[str] = ()) -> None:
    """Both have the same times, features, bit for bit, pictures and labels.

    Args:
        a, b: the episodes.
        but: names of features that may differ.
    """
    assert a.timestamps_ns.tolist() == b.timestamps_ns.tolist()
    assert a.features.keys() == b.features.keys()
    for name, values in a.features.items():
        other = b.features[name]
        assert values.dtype == other.dtype, name
        assert values.shape == other.shape, name
        if name not in but:
            assert values.tobytes() == other.tobytes() or values.tolist() == other.tolist(), name
    assert not a.valid
    assert not b.valid
    for name in ("fps", "embodiment", *LABELS):
        assert getattr(a, name) == getattr(b, name), name
    same_cameras(a, b)


def same_cameras(a: Episode, b: Episode) -> None:
    """Every step shows the same picture."""
    assert a.cameras.keys() == b.cameras.keys()
    for name in a.cameras:
        ours, theirs = decoded(a.cameras[name]), decoded(b.cameras[name])
        shown = zip(
            a.cameras[name].index.step_to_frame.tolist(),
            b.cameras[name].index.step_to_frame.tolist(),
            strict=True,
        )
        for step, (one, other) in enumerate(shown):
            assert np.array_equal(ours[one], theirs[other]), (name, step)
