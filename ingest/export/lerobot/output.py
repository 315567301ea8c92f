"""What a layout is given to write, episode by episode, and at the end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ingest.export.lerobot.mp4 import Clip
from ingest.export.lerobot.schema import Schema
from ingest.export.lerobot.vector_stats import Stats


@dataclass(frozen=True, kw_only=True)
class EpisodeOutput:
    """An episode, ready to be written.

    Attributes:
        index: its number in the dataset.
        first_row: number in the dataset of its first step.
        rows: its steps, typed as in the data files.
        clips: key -> video.
        tasks: texts of its tasks.
        stats: key -> its statistics.
    """

    index: int
    first_row: int
    rows: pa.Table
    clips: Mapping[str, Clip]
    tasks: list[str]
    stats: Mapping[str, Stats]


@dataclass(frozen=True, kw_only=True)
class DatasetOutput:
    """What is known when all episodes are written.

    Attributes:
        schema: of the dataset.
        episodes, steps: how many.
        tasks: texts by task index.
        splits: name -> `first:stop` episodes.
        stats: key -> statistics of all steps.
    """

    schema: Schema
    episodes: int
    steps: int
    tasks: tuple[str, ...]
    splits: Mapping[str, str]
    stats: Mapping[str, Stats]


class Layout(Protocol):
    """One version of LeRobot's files."""

    data_schema: pa.Schema

    def add(self, episode: EpisodeOutput) -> None:
        """Write an episode; they come in order."""

    def finish(self, dataset: DatasetOutput) -> int:
        """Write what stands at the end; the number of data and video files."""

    def abandon(self) -> None:
        """Close what is open."""


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file as LeRobot does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False), encoding="utf-8")


def write_common(root: Path, dataset: DatasetOutput) -> None:
    """The files that both layouts have: statistics, and GR00T's where there are parts."""
    write_json(root / "meta" / "stats.json", dataset.stats)
    if dataset.schema.modality:
        (root / "meta" / "modality.json").write_text(dataset.schema.modality, encoding="utf-8")
