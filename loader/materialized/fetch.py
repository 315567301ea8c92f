"""Reading materialised packs ahead: the bytes of a window of packs in one call, nothing else.

Stands where `loader.fetch.fetcher` stands: the same packs come out, and neither the episodes nor
their indexes are read.
"""

import hashlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import xxhash

from lake.errors import CorruptDataError, LakeError
from loader.assembly.shape import BatchShape
from loader.assembly.signals import PackSignals
from loader.cursor import Cursor
from loader.fetch.bad_rows import MOST_REREADS, damaged_on_the_way
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedPack
from loader.fetch.fetcher import WINDOW_PACKS, FetchLimits, most_look_ahead
from loader.fetch.images import image_table
from loader.fetch.plan_rows import PackRow, PlanRows
from loader.fetch.read_ahead import ReadAhead
from loader.materialized.pack import PackContent, pack_from_bytes
from loader.materialized.reuse import SharedRuns
from loader.observe.metrics import LoaderMetrics
from loader.storage.pack_tiers import PackTiers

_BLOCKS_AHEAD: Final = 32  # whose sizes are read in one call
_MOST_WINDOWS: Final = 4  # under way at once, none of them of more than this part of the bytes
_LOOK_AHEAD_GROWTH: Final = 2  # packs, for each one handed out: more would wait for storage
_DATA_COLUMNS: Final = ("pack", "data", "checksum")


@dataclass(frozen=True, kw_only=True)
class _SizedPack:
    """A pack of the plan and the bytes of its row; 0 where no slot of the step is ours."""

    row: PackRow
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class _ComingPack:
    """A pack that is here; `nbytes` are those of its row."""

    row: PackRow
    content: PackContent
    nbytes: int


class MaterializedFetcher:
    """Yields the packs of some blocks of positions from a complete set.

    Args:
        tiers: where to read the set.
        rows: tables of its plan.
        cursor: what positions mean.
        shape: sizes of the plan's batches.
        limits: the packs that are here or under way may take the bytes that `Fetcher` has for
            packets and episodes; a single pack may exceed it.
        metrics: where to count.
    """

    def __init__(
        self,
        tiers: PackTiers,
        rows: PlanRows,
        cursor: Cursor,
        shape: BatchShape,
        limits: FetchLimits,
        metrics: LoaderMetrics,
    ) -> None:
        self._tiers = tiers
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
        self._sizes = ReadAhead[list[_SizedPack]]("sizes", 1)
        self._windows = ReadAhead[list[tuple[_SizedPack, memoryview]]]("packs", _MOST_WINDOWS)
        self._sized = deque[_SizedPack]()  # not yet being read
        self._coming = deque[_ComingPack]()
        self._held = 0  # bytes of coming packs, and of those being read
        self._failed: Exception | None = None
        # Pictures that were encoded anew are in one pack alone: nothing to share.
        copied = tiers.packs.settings.codec == "copy"
        self._most_look_ahead = most_look_ahead(rows, cursor) if copied else 0
        self._look_ahead = 0

    def packs(self, blocks: Iterable[range]) -> Generator[FetchedPack]:
        """The packs at these positions, in order; to be asked for once.

        An error comes behind all packs of the windows before it.

        Raises:
            LakeError: the set cannot be read; names the pack and its file.
            CorruptDataError: a pack does not match its checksum; names the same.
        """
        upcoming = iter(blocks)
        with closing(self._sizes), closing(self._windows):
            while True:
                self._look(upcoming)
                if not self._coming:
                    if self._failed is not None:
                        raise self._failed
                    return
                # It grows from nothing, so that the first batch waits for one window.
                self._look_ahead = min(self._look_ahead + _LOOK_AHEAD_GROWTH, self._most_look_ahead)
                yield self._planned(self._coming.popleft())

    def _look(self, upcoming: Iterator[range]) -> None:
        """Start to read what has room, and have the packs of the look-ahead come in."""
        try:
            self._start_windows(upcoming)
            while self._windows and len(self._coming) <= self._look_ahead:
                with self._metrics.stage("fetch"):
                    window = self._windows.take()
                with self._metrics.stage("plan"):
                    for pack, data in window:
                        self._enter(pack, data)
                self._start_windows(upcoming)
        except Exception as error:  # noqa: BLE001  # raised when it is its turn
            self._failed = error
            self._windows.close()

    def _start_windows(self, upcoming: Iterator[range]) -> None:
        while self._failed is None and len(self._windows) < _MOST_WINDOWS:
            if not self._sized and not self._next_sizes(upcoming):
                return
            window, nbytes = [self._sized[0]], self._sized[0].nbytes
            for pack in islice(self._sized, 1, WINDOW_PACKS):
                if nbytes + pack.nbytes > self._limit // _MOST_WINDOWS:
                    break
                window.append(pack)
                nbytes += pack.nbytes
            if self._held and self._held + nbytes > self._limit:
                return
            for _ in window:
                self._sized.popleft()
            self._held += nbytes
            self._windows.start(partial(_read_window, self._tiers, window))
            self._metrics.add(requests=bool(nbytes), bytes_read=nbytes)

    def _next_sizes(self, upcoming: Iterator[range]) -> bool:
        """Wait for the next packs' sizes, and start to read those behind; False at the end."""
        if not self._sizes:
            self._start_sizes(upcoming)
        if not self._sizes:
            return False
        try:
            with self._metrics.stage("fetch"):
                self._sized.extend(self._sizes.take())
        except Exception as error:  # noqa: BLE001  # raised when it is its turn
            self._failed = error
            return False
        self._start_sizes(upcoming)
        return True

    def _start_sizes(self, upcoming: Iterator[range]) -> None:
        blocks = islice(upcoming, _BLOCKS_AHEAD)
        if positions := [position for block in blocks for position in block]:
            self._sizes.start(
                partial(_read_sizes, self._tiers, self._rows, self._cursor, positions)
            )
            self._metrics.add(requests=1)

    def _enter(self, pack: _SizedPack, data: memoryview) -> None:
        """The next pack is here."""
        row = pack.row
        if row.pack >= 0:
            try:
                content = pack_from_bytes(data, row, self._rows, self._streams)
            except CorruptDataError as error:
                raise _damaged(self._tiers, row.pack, error) from error
        else:  # no slot of this step is ours
            content = PackContent(images=image_table(row, {}), signals=self._no_signals, runs=())
        self._shared.enter(content)
        self._coming.append(_ComingPack(row=row, content=content, nbytes=pack.nbytes))

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


def _read_sizes(
    tiers: PackTiers, rows: PlanRows, cursor: Cursor, positions: Sequence[int]
) -> list[_SizedPack]:
    """Rows of the plan, and the sizes of their packs."""
    wanted = rows.read([cursor.place(position) for position in positions])
    ours = [row.pack for row in wanted if row.pack >= 0]
    sizes = _take(tiers, ours, ["data_bytes"])["data_bytes"].to_pylist() if ours else []
    size_of = dict(zip(ours, sizes, strict=True))
    return [_SizedPack(row=row, nbytes=size_of.get(row.pack, 0)) for row in wanted]


def _read_window(
    tiers: PackTiers, window: Sequence[_SizedPack]
) -> list[tuple[_SizedPack, memoryview]]:
    """The bytes of some packs in one call, verified; none where no slot of a step is ours."""
    ours = [pack.row.pack for pack in window if pack.row.pack >= 0]
    parts = iter(_verified(tiers, ours) if ours else ())
    return [(pack, next(parts) if pack.row.pack >= 0 else memoryview(b"")) for pack in window]


def _verified(tiers: PackTiers, numbers: Sequence[int]) -> Iterator[memoryview]:
    table = _take(tiers, numbers, _DATA_COLUMNS)
    for row, number in enumerate(numbers):
        data = _sound(table, row, number)
        yield _read_again(tiers, number, _content(table, row)) if data is None else data


def _read_again(tiers: PackTiers, number: int, wrong: bytes) -> memoryview:
    """The bytes of a pack that may have been damaged on its way to us, or to the node's cache.

    Only a set that brings the same wrong bytes twice is damaged, and worth removing.
    """
    seen = {wrong}
    for _ in range(MOST_REREADS):
        table = tiers.take([number], _DATA_COLUMNS, past_caches=True)
        data = _sound(table, 0, number)
        if data is not None:
            return data
        wrong = _content(table, 0)
        if wrong in seen:
            raise _damaged(tiers, number, "does not match its checksum")
        seen.add(wrong)
    where = f"materialised pack {number} in {tiers.packs.file_of(number)}"
    raise CorruptDataError(damaged_on_the_way(f"{where}: does not match its checksum"))


def _content(table: pa.Table, row: int) -> bytes:
    """All that is stored of a pack, as short as a digest."""
    digest = hashlib.sha256(table["data"][row].as_buffer())
    digest.update(repr((table["pack"][row].as_py(), table["checksum"][row].as_py())).encode())
    return digest.digest()


def _sound(table: pa.Table, row: int, number: int) -> memoryview | None:
    """The bytes of a pack, None where they are not those that were written."""
    data = memoryview(table["data"][row].as_buffer())
    pack, checksum = table["pack"][row].as_py(), table["checksum"][row].as_py()
    return data if pack == number and xxhash.xxh3_64_intdigest(data) == checksum else None


def _take(tiers: PackTiers, numbers: Sequence[int], columns: Sequence[str]) -> pa.Table:
    try:
        return tiers.take(numbers, columns)
    except LakeError as error:
        for number in numbers:
            try:
                tiers.take([number], columns)
            except LakeError as damaged:
                raise type(damaged)(_named(tiers, number, damaged)) from error
        raise


def _damaged(tiers: PackTiers, number: int, problem: object) -> CorruptDataError:
    return CorruptDataError(_named(tiers, number, problem))


def _named(tiers: PackTiers, number: int, problem: object) -> str:
    return (
        f"materialised pack {number} in {tiers.packs.file_of(number)}: {problem}; remove the set"
        f" (`{tiers.packs.command} --remove`) and materialise again, or read the episodes instead"
    )
