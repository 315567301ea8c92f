"""A stretch of a Zarr array as the rows of an episode."""

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError

_HELD_BYTES: Final = 256 << 20


class ZarrRows:
    """Rows [start, stop) of an array; see `ingest.arrays.rows.Rows`.

    Arrays are stored in chunks of many rows: the chunks that were decoded last are kept, as far as
    they are small, so that reading in parts decodes each once.

    Args:
        array: of the zarr library.
        where: file and path inside it, for errors.
        start, stop: rows of the episode.
    """

    def __init__(self, array: Any, where: str, start: int, stop: int) -> None:  # noqa: ANN401
        self._array = array
        self._where = where
        self._start = start
        self.shape: Final[tuple[int, ...]] = (stop - start, *array.shape[1:])
        self.dtype: Final[np.dtype[Any]] = array.dtype
        self._held_from = 0
        self._held: NDArray[Any] | None = None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See `Rows`.

        Raises:
            EpisodeError: a chunk is damaged or its codec is not installed.
        """
        first, last = self._start + start, self._start + stop
        held = self._held
        if held is None or first < self._held_from or last > self._held_from + len(held):
            per_chunk = self._array.chunks[0]
            begin = first // per_chunk * per_chunk
            end = min(-(-last // per_chunk) * per_chunk, self._array.shape[0])
            row_bytes = prod(self._array.shape[1:]) * self._array.dtype.itemsize
            if (end - begin) * row_bytes > _HELD_BYTES:
                return self._decode(first, last)
            held, self._held_from = self._decode(begin, end), begin
            self._held = held
        return held[first - self._held_from : last - self._held_from]

    def _decode(self, first: int, last: int) -> NDArray[Any]:
        try:
            return np.asarray(self._array[first:last])
        except Exception as error:  # each codec raises its own on damaged bytes
            raise EpisodeError(
                f"{self._where}: rows {first}..{last} cannot be read:"
                f" {type(error).__name__}: {error}",
                reason="damaged-stream",
                stream=self._where.rsplit("/", 1)[-1],
            ) from error


class BytePictures:
    """Pictures stored as floating-point numbers that are whole and from 0 to 255, as bytes.

    Args:
        rows: [T, H, W, 3] floats.
        where: file and path inside it, for errors.
    """

    dtype: Final = np.dtype(np.uint8)

    def __init__(self, rows: ZarrRows, where: str) -> None:
        self._rows = rows
        self._where = where
        self.shape: Final[tuple[int, ...]] = rows.shape

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """See `Rows`.

        Raises:
            EpisodeError: numbers that no byte holds.
        """
        values = self._rows.read(start, stop)
        with np.errstate(invalid="ignore"):
            pictures = values.astype(np.uint8)
        if not np.array_equal(pictures, values):
            raise EpisodeError(
                f"{self._where}: pictures of {values.dtype} that hold other numbers than 0 to 255",
                reason="pictures-not-bytes",
                stream=self._where.rsplit("/", 1)[-1],
            )
        return pictures


class ChannelsLast:
    """Pictures [T, 3, H, W] as [T, H, W, 3].

    Args:
        rows: with the channels first.
    """

    def __init__(self, rows: ZarrRows) -> None:
        self._rows = rows
        steps, channels, height, width = rows.shape
        self.shape: Final[tuple[int, ...]] = (steps, height, width, channels)
        self.dtype: Final[np.dtype[Any]] = rows.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See `Rows`."""
        return np.moveaxis(self._rows.read(start, stop), 1, 3)
