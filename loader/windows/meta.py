"""What trainers read of a dataset besides its samples: features, rates, episodes, statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.feature_stats import QUANTILES, FeatureStats, combine
from lake.spec import FeatureSpec
from lake.store import Lake
from loader.errors import LoaderError
from loader.windows.index import WindowIndex
from loader.windows.keys import COUNTERS, SpecKeys, delivered_dtype, picture_sizes

Stats: TypeAlias = dict[str, dict[str, NDArray[Any]]]

_STATS: Final = ("count", "invalid", "min", "max", "mean", "m2", "sketch")
_PROBABILITIES: Final = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


@dataclass(frozen=True, kw_only=True)
class WindowMeta:
    """Facts of a dataset under the names that LeRobot's trainers use.

    Attributes:
        features: key -> `dtype` (as delivered; `video` for cameras), `shape` of one step (cameras:
            height, width, 3) and `names`. Where episodes differ: of the first spec that has the
            key, and the smallest picture.
        camera_keys: keys of pictures.
        tasks: the distinct task texts.
        robot_type: embodiments of the episodes, joined by commas.
        episodes: column -> one entry per episode: `episode_id`, `dataset`, `length`, and
            `dataset_from_index`, `dataset_to_index`, between which its samples lie.
    """

    features: Mapping[str, Mapping[str, Any]]
    camera_keys: tuple[str, ...]
    tasks: tuple[str, ...]
    robot_type: str
    episodes: Mapping[str, list[Any]] = field(repr=False)

    @property
    def total_episodes(self) -> int:
        """Number of episodes."""
        return len(self.episodes["length"])

    @property
    def total_frames(self) -> int:
        """Number of samples."""
        return int(sum(self.episodes["length"]))


def window_meta(
    index: WindowIndex, keys: Sequence[SpecKeys], image_size: tuple[int, int] | None
) -> WindowMeta:
    """The facts of an index."""
    features: dict[str, Mapping[str, Any]] = {}
    camera_keys = tuple(dict.fromkeys(key for spec in keys for key in spec.cameras))
    for key in camera_keys:
        height, width = image_size or min(picture_sizes(index, keys, key))
        features[key] = {
            "dtype": "video",
            "shape": (height, width, 3),
            "names": ["height", "width", "channels"],
        }
    for spec in keys:
        for key, feature in spec.features.items():
            features.setdefault(key, _described(feature))
    for key in COUNTERS:
        dtype = "float32" if key == "timestamp" else "int64"
        features.setdefault(key, {"dtype": dtype, "shape": (1,), "names": None})
    rows = index.episodes
    return WindowMeta(
        features=features,
        camera_keys=camera_keys,
        tasks=index.tasks,
        robot_type=",".join(sorted(set(rows["embodiment"].to_pylist()))),
        episodes={
            "episode_id": rows["episode_id"].to_pylist(),
            "dataset": rows["dataset"].to_pylist(),
            "length": rows["num_steps"].to_pylist(),
            "dataset_from_index": index.offsets[:-1].tolist(),
            "dataset_to_index": index.offsets[1:].tolist(),
        },
    )


def window_stats(lake: Lake, index: WindowIndex, keys: Sequence[SpecKeys]) -> Stats:
    """Statistics over the episodes of the index, merged from those that the lake keeps of each.

    Returns:
        Key -> `min`, `max`, `mean`, `std`, `q01`, `q10`, `q50`, `q90`, `q99`: float64 [D], D
        elements flattened; and `count`: int64 [1], steps that are valid and finite. Quantiles are
        close, not exact. Cameras have none.

    Raises:
        LoaderError: a key has another size in some episodes, so that no statistics are of all.
    """
    wanted = {
        (index.specs[number].spec_id, feature.name): key
        for number, spec in enumerate(keys)
        for key, feature in spec.features.items()
        if feature.dtype != "string"
    }
    with lake.errors_named("read statistics"):
        table = lake.dataset("stats").to_table(
            columns=["episode_id", "spec_id", "feature", *_STATS]
        )
    ours = pc.is_in(table["episode_id"], value_set=index.episodes["episode_id"].combine_chunks())
    table = table.filter(ours).sort_by("episode_id")
    parts: dict[str, list[FeatureStats]] = {}
    for row in table.to_pylist():
        key = wanted.get((row["spec_id"], row["feature"]))
        if key is not None and len(row["min"]):
            parts.setdefault(key, []).append(_of_row(row))
    stats: Stats = {}
    for key, each in parts.items():
        if len({len(part.min) for part in each}) > 1:
            raise LoaderError(
                f"{key} has {sorted({len(part.min) for part in each})} elements in different"
                " episodes, so it has no statistics over all; choose episodes of one embodiment"
            )
        stats[key] = _merged(combine(each))
    return stats


def _described(feature: FeatureSpec) -> dict[str, Any]:
    return {
        "dtype": delivered_dtype(feature),
        "shape": feature.shape or (1,),
        "names": None if feature.names is None else list(feature.names),
    }


def _of_row(row: Mapping[str, Any]) -> FeatureStats:
    arrays = {name: np.asarray(row[name], np.float64) for name in ("min", "max", "mean", "m2")}
    return FeatureStats(
        count=row["count"],
        invalid=row["invalid"],
        **arrays,
        quantiles=np.asarray(row["sketch"], np.float64).reshape(len(QUANTILES), -1),
    )


def _merged(total: FeatureStats) -> dict[str, NDArray[Any]]:
    quantiles = {name: total.quantile(p) for name, p in _PROBABILITIES.items()}
    return {
        "min": total.min,
        "max": total.max,
        "mean": total.mean,
        "std": total.std,
        **quantiles,
        "count": np.array([total.count], np.int64),
    }
