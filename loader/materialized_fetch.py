"""Reading materialised packs: the bytes of a window of packs in one call, nothing else.

Stands where `loader.fetch.Fetcher` stands: the same packs come out, and neither the episodes nor
their indexes are read.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import xxhash

from lake.errors import CorruptDataError, LakeError
from loader.cursor import Cursor
from loader.episodes import CameraStream
from loader.fetch import WINDOW_PACKS, FetchedPack, FetchLimits, most_look_ahead
from loader.images import image_table
from loader.materialized_pack import PackContent, pack_from_bytes
from loader.materialized_reuse import SharedRuns
from loader.materialized_set import MaterializedSet
from loader.metrics import LoaderMetrics
from loader.plan_rows import PackRow, PlanRows
from loader.shape import BatchShape
from loader.signals import PackSignals

_BLOCKS_AHEAD: Final = 32  # whose sizes are read in one call
_DATA_COLUMNS: Final = ("pack", "data", "checksum")


@dataclass(frozen=True, kw_only=True)
class _ComingPack:
    """A pack that is here; `nbytes` are those of its row."""

    row: PackRow
    content: PackContent
    nbytes: int


class MaterializedFetcher:
    """Yields the packs of some blocks of positions from a complete set.

    Args:
        packs: the set.
        rows: tables of its plan.
        cursor: what positions mean.
        shape: sizes of the plan's batches.
        limits: the packs that are here may take the bytes that `Fetcher` has for packets and
            episodes; a single pack may exceed it.
        metrics: where to count.
    """

    def __init__(
        self,
        packs: MaterializedSet,
        rows: PlanRows,
        cursor: Cursor,
        shape: BatchShape,
        limits: FetchLimits,
        metrics: LoaderMetrics,
    ) -> None:
        self._set = packs
        self._rows = rows
        self._cursor = cursor
        self._limit = limits.packet_bytes + limits.episode_bytes
        self._metrics = metrics
        self._no_signals = PackSignals(
            state=np.empty((0, shape.state_size), np.float32),
            action=np.empty((0, shape.action_size), np.float32),
        )
        self._shared = SharedRuns(limits.kept_frame_bytes)
        self._streams = WeakValueDictionary[tuple[int, int], CameraStream]()
        self._coming = deque[_ComingPack]()
        self._held = 0
        # Pictures that were encoded anew are in one pack alone: nothing to share.
        copied = packs.settings.codec == "copy"
        self._most_look_ahead = most_look_ahead(rows, cursor) if copied else 0
        self._look_ahead = 0

    def packs(self, blocks: Iterable[range]) -> Iterator[FetchedPack]:
        """The packs at these positions, in order.

        Raises:
            LakeError: the set cannot be read; names the pack and its file.
            CorruptDataError: a pack does not match its checksum; names the same.
        """
        windows = self._windows(iter(blocks))
        while True:
            while (
                len(self._coming) <= self._look_ahead and self._held < self._limit
            ) or not self._coming:
                window = next(windows, None)
                if window is None:
                    break
                for coming in window:
                    self._shared.enter(coming.content)
                    self._coming.append(coming)
                    self._held += coming.nbytes
            if not self._coming:
                return
            # It grows from one window, so that the first batch does not wait for it.
            self._look_ahead = min(2 * self._look_ahead + WINDOW_PACKS, self._most_look_ahead)
            yield self._planned(self._coming.popleft())

    def _planned(self, coming: _ComingPack) -> FetchedPack:
        self._held -= coming.nbytes
        with self._metrics.stage("plan"):
            pictures, runs = self._shared.plan(coming.content)
        return FetchedPack(
            row=coming.row,
            images=coming.content.images,
            signals=coming.content.signals,
            pictures=pictures,
            runs=runs,
        )

    def _windows(self, blocks: Iterator[range]) -> Iterator[list[_ComingPack]]:
        """Read packs, a window after the other."""
        while several := list(islice(blocks, _BLOCKS_AHEAD)):
            with self._metrics.stage("plan"):
                positions = [position for block in several for position in block]
                rows = deque(self._rows.read([self._cursor.place(p) for p in positions]))
            with self._metrics.stage("fetch"):
                sizes = self._sizes([row.pack for row in rows if row.pack >= 0])
            while rows:
                yield self._window(rows, sizes)

    def _sizes(self, packs: Sequence[int]) -> dict[int, int]:
        if not packs:
            return {}
        self._metrics.counts["requests"] += 1
        table = self._take(packs, ["data_bytes"])
        return dict(zip(packs, table["data_bytes"].to_pylist(), strict=True))

    def _window(self, rows: deque[PackRow], sizes: dict[int, int]) -> list[_ComingPack]:
        """Read the next few packs."""
        window: list[PackRow] = []
        held = 0
        while rows and len(window) < WINDOW_PACKS:
            if window and self._held + held >= self._limit:
                break
            window.append(rows.popleft())
            held += sizes.get(window[-1].pack, 0)
        packs = [row.pack for row in window if row.pack >= 0]
        with self._metrics.stage("fetch"):
            table = self._take(packs, _DATA_COLUMNS) if packs else None
        self._metrics.counts["requests"] += bool(packs)
        self._metrics.counts["bytes_read"] += held
        read, number = [], 0
        with self._metrics.stage("plan"):
            for row in window:
                if table is not None and row.pack >= 0:
                    content = self._content(table, number, row)
                    number += 1
                else:  # no slot of this step is ours
                    content = PackContent(
                        images=image_table(row, {}), signals=self._no_signals, runs=()
                    )
                nbytes = sizes.get(row.pack, 0)
                read.append(_ComingPack(row=row, content=content, nbytes=nbytes))
        return read

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
            return pack_from_bytes(data, row, self._rows, self._streams)
        except CorruptDataError as error:
            raise CorruptDataError(self._named(row.pack, error)) from error

    def _named(self, pack: int, problem: object) -> str:
        return (
            f"materialised pack {pack} in {self._set.file_of(pack)}: {problem}; remove the set"
            f" (`{self._set.command} --remove`) and materialise again, or read the episodes instead"
        )
