"""The tiers through which the stream reads: the node's cache, then the lake itself."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Final, TypeVar

import pyarrow as pa

from lake.read_video import ByteRange, read_ranges
from lake.store import Lake
from lake.take import take_rows
from loader.observe.metrics import LoaderMetrics
from loader.storage.cached_blocks import Blob, blob_of, read_blocks
from loader.storage.cached_rows import RowNames, read_rows
from loader.storage.node_cache import NodeCache
from loader.storage.origin import Origin, bounded
from loader.storage.settings import StorageSettings

_BLOB_COLUMNS: Final = ("cameras", "camera_bytes")
_KEPT_BLOBS: Final = 1 << 14

T = TypeVar("T")


class Tiers(AbstractContextManager["Tiers"]):
    """Rows and byte ranges of a lake's episodes; safe to call from several threads.

    Attributes:
        lake: the lake that is read, with time-outs for its requests.

    Args:
        lake: pinned to the versions that are read.
        key_of: row address -> SHA-256 of the content of the episode there.
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
        self.lake = bounded(lake, settings)
        self._key_of = key_of
        self._metrics = metrics
        self._origin = Origin(self.lake, settings, metrics)
        self._cache = NodeCache.of(settings, metrics)
        table = partial(self.lake.dataset, "trajectories")
        self._names = RowNames(lambda: self.read("the table of episodes", table))
        self._lock = threading.Lock()
        self._blobs: OrderedDict[int, Blob] = OrderedDict()

    def read(self, what: str, read: Callable[[], T]) -> T:
        """Call what reads something else of the lake, as patiently as rows are read.

        Raises:
            LakeError: as `read`.
            StorageTimeoutError: the store failed until the deadline.
        """
        return self._origin.read(lambda: what, read)

    def rows(
        self, addresses: Sequence[int], columns: Sequence[str], *, past_caches: bool = False
    ) -> pa.Table:
        """Rows of `trajectories`, as `lake.take.take_rows` gives them.

        Args:
            addresses: rows, repeats allowed.
            columns: any but `video`.
            past_caches: read from the lake itself, past Lance's caches too, and renew what the
                node's cache holds.

        Raises:
            LakeError: as `take_rows`.
            StorageTimeoutError: the store failed until the deadline.
        """
        if past_caches:
            self.lake.reopen()
        if self._cache is None or not addresses:
            rows = self._take(addresses, columns)
        else:
            rows, counts = read_rows(
                self._cache,
                [self._names.of(address, columns) for address in addresses],
                lambda numbers: self._take([addresses[number] for number in numbers], columns),
                renew=past_caches,
            )
            counts.count_in(self._metrics)
            if set(_BLOB_COLUMNS).issubset(columns):
                self._learn(addresses, rows)
        if past_caches:
            self._metrics.add(reread_bytes=rows.nbytes)
        return rows

    def ranges(self, ranges: Sequence[ByteRange], *, past_caches: bool = False) -> list[bytes]:
        """Bytes of many ranges of video, as `lake.read_video.read_ranges` gives them.

        Args:
            ranges: of any rows.
            past_caches: read from the lake itself, past Lance's caches too, and renew what the
                node's cache holds.

        Raises:
            LakeError: as `read_ranges`.
            StorageTimeoutError: the store failed until the deadline.
        """
        if not ranges:
            return []
        if past_caches:
            self.lake.reopen()
            self._metrics.add(reread_bytes=sum(wanted.length for wanted in ranges))
        if self._cache is None:
            return self._read(ranges)
        blobs = self._blobs_of({wanted.address for wanted in ranges})
        if any(wanted.offset + wanted.length > blobs[wanted.address].size for wanted in ranges):
            return self._read(ranges)  # which says what is wrong
        data, counts = read_blocks(self._cache, ranges, blobs, self._read, renew=past_caches)
        counts.count_in(self._metrics)
        return data

    def close(self) -> None:
        """End the watchdog, and reads that would be repeated."""
        self._origin.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
        return self._origin.read(
            lambda: f"rows of {len(addresses)} episodes",
            lambda: take_rows(self.lake, addresses, columns),
        )

    def _read(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        return self._origin.read(
            lambda: f"{len(ranges)} ranges of video of {len({r.address for r in ranges})} episodes",
            lambda: read_ranges(self.lake, ranges),
        )

    def _learn(self, addresses: Sequence[int], rows: pa.Table) -> dict[int, Blob]:
        """Note what names the blobs of rows that were read."""
        cameras, sizes = (rows[name].to_pylist() for name in _BLOB_COLUMNS)
        found = {
            address: blob_of(self._key_of(address), cameras[row], sizes[row])
            for row, address in enumerate(addresses)
        }
        with self._lock:
            self._blobs.update(found)
            while len(self._blobs) > _KEPT_BLOBS:
                self._blobs.popitem(last=False)
        return found

    def _blobs_of(self, addresses: set[int]) -> dict[int, Blob]:
        with self._lock:
            found = {address: self._blobs[address] for address in addresses & self._blobs.keys()}
        if unknown := sorted(addresses - found.keys()):
            found.update(self._learn(unknown, self.rows(unknown, _BLOB_COLUMNS)))
        return found
