"""What is known of the episodes to be exported without reading their signals and pictures."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.export.errors import ExportError
from ingest.natural_order import natural_key
from lake.read import Signals, parse_signals, signal_columns
from lake.read_video import INDEX_COLUMNS, parse_video_indexes
from lake.spec import FeatureSpec, Spec
from lake.store import Lake
from lake.tables import VALID_SUFFIX
from lake.take import take_rows
from lake.video_index import VideoIndex
from lake.visible import visible_episodes

_BATCH: Final = 64
_ORDER: Final = ("dataset", "source", "locator", "episode_id")
_FACTS: Final = ("dataset", "source", "embodiment", "fps", "format")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The labels of an episode as they are now."""

    task: str | None
    instruction: str | None
    success: bool | None
    split: str | None
    tags: tuple[str, ...]
    quality: float | None

    @property
    def text(self) -> str:
        """What the robot was told: the instruction, else the task, else nothing."""
        return self.instruction or self.task or ""


@dataclass(frozen=True, kw_only=True)
class EpisodeFacts:
    """An episode but for its signals and packets.

    Attributes:
        address: its row.
        format: recording format it came from.
        source, dataset, embodiment, fps: as in `lake.Episode`.
        signals: spec, step times, and those features that were asked for.
        features: specs of the features that the episode has.
        invalid: number of invalid steps of each feature that has any.
        cameras: camera name -> packet index.
        labels: its labels.
    """

    address: int
    format: str
    source: str
    dataset: str
    embodiment: str
    fps: float | None
    signals: Signals
    features: tuple[FeatureSpec, ...]
    invalid: Mapping[str, int]
    cameras: Mapping[str, VideoIndex]
    labels: Labels

    @property
    def episode_id(self) -> str:
        """Id of the episode."""
        return self.signals.episode_id

    def values(self, source_name: str) -> NDArray[Any] | None:
        """Values of the feature that the source called so, where they were asked for."""
        for feature in self.features:
            if feature.source_name == source_name:
                return self.signals.features.get(feature.name)
        return None


def choose_episodes(lake: Lake, episode_ids: Sequence[str] | None) -> list[int]:
    """Addresses of the episodes, in the order of dataset, source and place in the source.

    Args:
        lake: where.
        episode_ids: which, None for all.

    Raises:
        ExportError: an unknown id, or no episode at all.
    """
    table = visible_episodes(lake, _ORDER).to_pylist()
    if episode_ids is not None:
        wanted = set(episode_ids)
        table = [row for row in table if row["episode_id"] in wanted]
        if missing := sorted(wanted - {row["episode_id"] for row in table}):
            raise ExportError(f"{lake.uri}: no episode {missing[0]!r} ({len(missing)} unknown ids)")
    if not table:
        raise ExportError(f"{lake.uri}: there is no episode to export")
    table.sort(key=lambda row: [natural_key(row[name] or "") for name in _ORDER])
    return [row["address"] for row in table]


def read_facts(
    lake: Lake, addresses: Sequence[int], wanted_features: Callable[[Spec], Collection[str]]
) -> Iterator[EpisodeFacts]:
    """The facts of episodes, some episodes at a time.

    Args:
        lake: where.
        addresses: rows, as `choose_episodes` gives them.
        wanted_features: names of the features to read, which should be small, by spec.

    Raises:
        CorruptDataError: stored values do not match their checksums.
    """
    labels = _labels(lake)
    stored = lake.dataset("trajectories").schema.names
    masks = [name for name in stored if name.endswith(VALID_SUFFIX)]
    for start in range(0, len(addresses), _BATCH):
        batch = addresses[start : start + _BATCH]
        specs = set(take_rows(lake, batch, ["spec_id"])["spec_id"].to_pylist())
        names = {name for spec in specs for name in wanted_features(lake.spec(spec))}
        columns = signal_columns(lake, sorted(names))
        wanted = dict.fromkeys([*columns, *INDEX_COLUMNS, *_FACTS, *masks])
        rows = take_rows(lake, batch, list(wanted))
        signals = parse_signals(lake, rows, batch, columns)
        videos = parse_video_indexes(rows, batch)
        facts = rows.select([*_FACTS, "features"]).to_pylist()
        for number, (signal, video, fact) in enumerate(zip(signals, videos, facts, strict=True)):
            present = set(fact.pop("features"))
            features = tuple(f for f in signal.spec.features if f.column in present)
            invalid = {}
            for feature in features:
                mask = feature.column + VALID_SUFFIX
                if mask in masks and rows[mask][number].is_valid:
                    steps = rows[mask][number].values.to_numpy(zero_copy_only=False)
                    invalid[feature.name] = int(np.count_nonzero(~steps))
            yield EpisodeFacts(
                address=batch[number],
                signals=signal,
                features=features,
                invalid={name: count for name, count in invalid.items() if count},
                cameras=video.cameras,
                labels=labels[signal.episode_id],
                **fact,
            )


def _labels(lake: Lake) -> dict[str, Labels]:
    columns = ["episode_id", "task", "instruction", "success", "split", "tags", "quality"]
    with lake.errors_named("read labels"):
        rows = lake.dataset("episodes").to_table(columns=columns).to_pylist()
    return {
        row.pop("episode_id"): Labels(**{**row, "tags": tuple(row["tags"] or ())}) for row in rows
    }
