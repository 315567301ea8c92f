"""An array of a recording, a row per step, that is read in parts."""

from typing import Any, Protocol

import numpy as np


class Rows(Protocol):
    """What a format offers of each of its arrays."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the whole array; None where it has no extent at all."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its elements; may raise TypeError where NumPy has no such type."""

    def read(self, start: int, stop: int) -> Any:  # noqa: ANN401  texts and bytes come as objects
        """Rows [start, stop) as an array.

        Raises:
            EpisodeError: they were never written, or cannot be read back.
        """


def count_rows(rows: Rows) -> int:
    """Length of the first axis; 0 for what has none."""
    return rows.shape[0] if rows.shape else 0
