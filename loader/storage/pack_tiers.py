"""The tiers through which the stream reads materialised packs: the node's cache, then the lake."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import accumulate
from types import TracebackType

import pyarrow as pa

from loader.materialized.pack_set import MaterializedSet
from loader.observe.metrics import LoaderMetrics
from loader.storage.cached_rows import RowNames, read_rows
from loader.storage.node_cache import NodeCache
from loader.storage.origin import Origin
from loader.storage.settings import StorageSettings


class PackTiers(AbstractContextManager["PackTiers"]):
    """Rows of a set; safe to call from several threads.

    Attributes:
        packs: the set.

    Args:
        packs: complete; opened in a lake as `bounded` gives it.
        settings: see `StorageSettings`.
        metrics: where to count.
    """

    def __init__(
        self, packs: MaterializedSet, settings: StorageSettings, metrics: LoaderMetrics
    ) -> None:
        self.packs = packs
        self._metrics = metrics
        self._origin = Origin(packs.lake, settings, metrics, reopen=packs.reopen)
        self._cache = NodeCache.of(settings, metrics)
        self._names = RowNames(lambda: packs.dataset)

    def take(
        self, packs: Sequence[int], columns: Sequence[str], *, past_caches: bool = False
    ) -> pa.Table:
        """Rows of some packs, in their order, as `MaterializedSet.take` gives them.

        Args:
            packs: rows of the plan.
            columns: of `loader.materialized.pack_set.SCHEMA`.
            past_caches: read from the lake itself, and renew what the caches hold.

        Raises:
            LakeError: they cannot be read.
            StorageTimeoutError: the store failed until the deadline.
        """
        if past_caches:
            self.packs.reopen()
        # The sizes of many packs are one small read: an entry for each would cost more.
        if self._cache is None or "data" not in columns:
            return self._take(packs, columns)
        rows, counts = read_rows(
            self._cache,
            [self._names.of(self._address(pack), columns) for pack in packs],
            lambda numbers: self._take([packs[number] for number in numbers], columns),
            renew=past_caches,
        )
        counts.count_in(self._metrics)
        if past_caches:
            self._metrics.add(reread_bytes=rows.nbytes)
        return rows

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

    def _take(self, packs: Sequence[int], columns: Sequence[str]) -> pa.Table:
        return self._origin.read(
            lambda: f"{len(packs)} materialised packs", lambda: self.packs.take(packs, columns)
        )

    @cached_property
    def _fragments(self) -> tuple[list[int], list[int]]:
        """Ids of the data files' fragments, and the first pack of each."""
        fragments = self.packs.dataset.get_fragments()
        firsts = accumulate((fragment.physical_rows for fragment in fragments), initial=0)
        return [fragment.fragment_id for fragment in fragments], list(firsts)

    def _address(self, pack: int) -> int:
        ids, firsts = self._fragments
        number = min(bisect_right(firsts, pack), len(ids)) - 1
        return ids[number] << 32 | (pack - firsts[number])
