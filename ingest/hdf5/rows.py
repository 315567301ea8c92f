"""A dataset of an HDF5 file as rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.hdf5.files import read_rows


@dataclass(frozen=True)
class Hdf5Rows:
    """See `ingest.arrays.rows.Rows`.

    Attributes:
        dataset: of h5py.
        where: file and path inside it, for errors.
    """

    dataset: Any
    where: str

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None for a null dataspace."""
        shape: tuple[int, ...] | None = self.dataset.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `Rows`."""
        dtype: np.dtype[Any] = self.dataset.dtype
        return dtype

    def read(self, start: int, stop: int) -> Any:  # noqa: ANN401  see `Rows`
        """See `Rows`."""
        return read_rows(self.dataset, start, stop, self.where)
