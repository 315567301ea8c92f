"""The tiers through which the stream reads episodes: the node's cache, then the lake itself."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from lake.read_video import ByteRange, read_ranges
from lake.store import Lake
from lake.take import take_rows
from loader.metrics import LoaderMetrics
from loader.storage.settings import StorageSettings


class Tiers:
    """Rows and byte ranges of a lake's episodes; safe to call from several threads.

    Attributes:
        lake: the lake that is read.

    Args:
        lake: pinned to the versions that are read.
        key_of: row address -> SHA-256 of the episode there, by which caches know it.
        settings: see `StorageSettings`.
        metrics: where to count.
    """

    def __init__(
        self,
        lake: Lake,
        key_of: Callable[[int], bytes],
        settings: StorageSettings,
        metrics: LoaderMetrics,
    ) -> None:
        self.lake = lake
        self._key_of = key_of
        self._settings = settings
        self._metrics = metrics

    def rows(
        self, addresses: Sequence[int], columns: Sequence[str], *, past_caches: bool = False
    ) -> pa.Table:
        """Rows of `trajectories`, as `lake.take.take_rows` gives them.

        Args:
            addresses: rows, repeats allowed.
            columns: any but `video`.
            past_caches: read from the lake itself, and renew what the caches hold.

        Raises:
            LakeError: as `take_rows`; a store that fails is asked again until the deadline.
        """
        del past_caches
        return take_rows(self.lake, addresses, columns)

    def ranges(self, ranges: Sequence[ByteRange], *, past_caches: bool = False) -> list[bytes]:
        """Bytes of many ranges of video, as `lake.read_video.read_ranges` gives them.

        Raises:
            LakeError: as `read_ranges`; a store that fails is asked again until the deadline.
        """
        del past_caches
        return read_ranges(self.lake, ranges)
