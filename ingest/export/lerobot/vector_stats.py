"""Statistics of columns: of each episode, and true ones of the dataset.

LeRobot averages the quantiles of episodes for those of the dataset, which can be off by a third of
the range. Here the values of all steps are kept in a file per column until the end.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from ingest.export.lerobot.schema import Column
from lake.feature_stats import MAX_ELEMENTS

QUANTILES: Final = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_BLOCK_BYTES: Final = 256 << 20

Stats = dict[str, Any]
"""Statistic -> nested list of the shape of a step, `[n]` for scalars; `count` is `[n]`."""


def vector_stats(values: NDArray[Any]) -> Stats:
    """min, max, mean, std, count and quantiles over the steps [T, *shape] that are all finite.

    Computed in float64. NaN throughout where there is no such step.
    """
    steps = len(values)
    flat = values.reshape(steps, -1)
    finite = np.isfinite(flat.astype(np.float64)).all(axis=1)
    return _shaped(_of(flat[finite]), values.shape[1:])


def has_stats(column: Column) -> bool:
    """Numbers have statistics; text, and what has very many elements per step, has none.

    Nor has a key with `image` in it that is no camera: LeRobot refuses its statistics unless they
    are of the shape of a picture's, and with them all episodes.
    """
    size = int(np.prod(column.shape, dtype=np.int64))
    return column.dtype != "string" and size <= MAX_ELEMENTS and "image" not in column.key


class ColumnSpool:
    """Values of all steps of all columns, on disk.

    Args:
        folder: an empty folder of its own; its files are removed at the end.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._files: dict[str, tuple[BinaryIO, np.dtype[Any], tuple[int, ...]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file, _, _ in self._files.values():
            file.close()
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    def add(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Append the steps of an episode, by key [T, *shape]."""
        for key, array in values.items():
            if key not in self._files:
                file = (self._folder / str(len(self._files))).open("w+b")
                self._files[key] = file, array.dtype, array.shape[1:]
            self._files[key][0].write(np.ascontiguousarray(array).tobytes())

    def stats(self) -> dict[str, Stats]:
        """True statistics of every column, a block of elements at a time."""
        return {key: self._stats_of(*of) for key, of in self._files.items()}

    def _stats_of(self, file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Stats:
        file.flush()
        size = int(np.prod(shape, dtype=np.int64))
        steps = np.memmap(file.name, dtype, "r").reshape(-1, size)
        finite = np.ones(len(steps), np.bool_)
        block = max(1, _BLOCK_BYTES // (8 * len(steps)))
        blocks = [slice(start, start + block) for start in range(0, size, block)]
        for part in blocks:
            finite &= np.isfinite(steps[:, part].astype(np.float64)).all(axis=1)
        parts = [_of(steps[finite, part]) for part in blocks]
        joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        joined["count"] = parts[0]["count"]
        return _shaped(joined, shape)


def _of(flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Statistics [D] of numbers [N, D]."""
    count = np.array([len(flat)], np.int64)
    numbers = flat.astype(np.float64)
    if not len(numbers):
        nothing = np.full(flat.shape[1], np.nan)
        names = ("min", "max", "mean", "std", *QUANTILES)
        return {**dict.fromkeys(names, nothing), "count": count}
    quantiles = np.quantile(numbers, list(QUANTILES.values()), axis=0)
    return {
        "min": numbers.min(axis=0),
        "max": numbers.max(axis=0),
        "mean": numbers.mean(axis=0),
        "std": numbers.std(axis=0),
        "count": count,
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }


def _shaped(stats: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> Stats:
    return {
        name: value.tolist() if name == "count" else value.reshape(shape or (1,)).tolist()
        for name, value in stats.items()
    }
