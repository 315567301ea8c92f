"""Reading materialised packs: the bytes of a window of packs in one call, nothing else.

Stands where `loader.fetch.Fetcher` stands: the same packs come out, and neither the episodes nor
their indexes are read. A pack holds all the packets that its pictures need, so nothing is kept from
one pack for the next.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash

from lake.errors import CorruptDataError, LakeError
from loader.cursor import Cursor
from loader.fetch import WINDOW_PACKS, FetchedPack
from loader.images import image_table
from loader.materialized_pack import PackContent, pack_from_bytes
from loader.materialized_set import MaterializedSet
from loader.metrics import LoaderMetrics
from loader.plan_rows import PackRow, PlanRows
from loader.reuse import PackPictures
from loader.shape import BatchShape
from loader.signals import PackSignals

_BLOCKS_AHEAD: Final = 32  # whose sizes are read in one call
_DATA_COLUMNS: Final = ("pack", "data", "checksum")
_NOTHING_KEPT: Final = PackPictures(decode={}, keep={}, drop={}, reused=0)


class MaterializedFetcher:
    """Yields the packs of some blocks of positions from a complete set.

    Args:
        packs: the set.
        rows: tables of its plan.
        cursor: what positions mean.
        shape: sizes of the plan's batches.
        limit_bytes: bytes of a window; a single pack may exceed it.
        metrics: where to count.
    """

    def __init__(
        self,
        packs: MaterializedSet,
        rows: PlanRows,
        cursor: Cursor,
        shape: BatchShape,
        *,
        limit_bytes: int,
        metrics: LoaderMetrics,
    ) -> None:
        self._set = packs
        self._rows = rows
        self._cursor = cursor
        self._limit = limit_bytes
        self._metrics = metrics
        self._no_signals = PackSignals(
            state=np.empty((0, shape.state_size), np.float32),
            action=np.empty((0, shape.action_size), np.float32),
        )

    def packs(self, blocks: Iterable[range]) -> Iterator[FetchedPack]:
        """The packs at these positions, in order.

        Raises:
            LakeError: the set cannot be read; names the pack and its file.
            CorruptDataError: a pack does not match its checksum; names the same.
        """
        upcoming = iter(blocks)
        while several := list(islice(upcoming, _BLOCKS_AHEAD)):
            with self._metrics.stage("plan"):
                positions = [position for block in several for position in block]
                coming = deque(self._rows.read([self._cursor.place(p) for p in positions]))
                sizes = self._sizes([row.pack for row in coming if row.pack >= 0])
            while coming:
                yield from self._window(coming, sizes)

    def _sizes(self, packs: Sequence[int]) -> dict[int, int]:
        if not packs:
            return {}
        self._metrics.counts["requests"] += 1
        table = self._take(packs, ["data_bytes"])
        return dict(zip(packs, table["data_bytes"].to_pylist(), strict=True))

    def _window(self, coming: deque[PackRow], sizes: dict[int, int]) -> Iterator[FetchedPack]:
        """Read the next few packs."""
        window: list[PackRow] = []
        held = 0
        while coming and len(window) < WINDOW_PACKS and held < self._limit:
            window.append(coming.popleft())
            held += sizes.get(window[-1].pack, 0)
        packs = [row.pack for row in window if row.pack >= 0]
        with self._metrics.stage("fetch"):
            table = self._take(packs, _DATA_COLUMNS) if packs else None
        self._metrics.counts["requests"] += bool(packs)
        self._metrics.counts["bytes_read"] += held
        number = 0
        for row in window:
            with self._metrics.stage("plan"):
                if row.pack >= 0:
                    content = self._content(table, number, row)
                    number += 1
                else:  # no slot of this step is ours
                    content = PackContent(
                        images=image_table(row, {}), signals=self._no_signals, runs=()
                    )
            yield FetchedPack(
                row=row,
                images=content.images,
                signals=content.signals,
                pictures=_NOTHING_KEPT,
                runs=content.runs,
            )

    def _take(self, packs: Sequence[int], columns: Sequence[str]) -> pa.Table:
        try:
            return self._set.take(packs, columns)
        except LakeError as error:
            for pack in packs:
                try:
                    self._set.take([pack], columns)
                except LakeError as damaged:
                    raise type(damaged)(self._named(pack, damaged)) from error
            raise

    def _content(self, table: pa.Table, number: int, row: PackRow) -> PackContent:
        column = table["data"]
        data = memoryview(column[number].as_buffer())
        pack, checksum = table["pack"][number].as_py(), table["checksum"][number].as_py()
        if pack != row.pack or xxhash.xxh3_64_intdigest(data) != checksum:
            problem = "does not match its checksum"
            raise CorruptDataError(self._named(row.pack, problem))
        try:
            return pack_from_bytes(data, row, self._rows)
        except CorruptDataError as error:
            raise CorruptDataError(self._named(row.pack, error)) from error

    def _named(self, pack: int, problem: object) -> str:
        return (
            f"materialised pack {pack} in {self._set.file_of(pack)}: {problem}; remove the set"
            f" (`{self._set.command} --remove`) and materialise again, or read the episodes instead"
        )
