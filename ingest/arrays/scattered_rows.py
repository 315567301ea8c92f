"""Rows that exist at some steps only."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.rows import Rows
from ingest.errors import EpisodeError


class ScatteredRows:
    """Rows that exist at some steps only, laid out over all of them; NaN or 0 at the others.

    Args:
        rows: those that exist.
        index: int64 [n], ascending, the step of each.
        num_steps: T.
        where: file and path, for errors.

    Raises:
        EpisodeError: steps that do not ascend or lie outside of the episode.
    """

    def __init__(self, rows: Rows, index: NDArray[np.int64], num_steps: int, where: str) -> None:
        if (np.diff(index) <= 0).any() or index[0] < 0 or index[-1] >= num_steps:
            raise EpisodeError(
                f"{where}: its index does not ascend inside the {num_steps} steps",
                reason="bad-index",
                stream=where.rsplit("/", 1)[-1],
            )
        self._rows = rows
        self._index = index
        self.shape: Final[tuple[int, ...]] = (num_steps, *(rows.shape or (0,))[1:])
        self.dtype: Final[np.dtype[Any]] = rows.dtype
        self.valid: Final[NDArray[np.bool_]] = np.isin(np.arange(num_steps), index)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See `Rows`."""
        first, last = np.searchsorted(self._index, (start, stop))
        fill = np.nan if self.dtype.kind == "f" else 0
        values = np.full((stop - start, *self.shape[1:]), fill, self.dtype)
        values[self._index[first:last] - start] = self._rows.read(int(first), int(last))
        return values
