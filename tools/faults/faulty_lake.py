"""A lake whose reads of episodes fail as a store's do, for any lake, without a server.

The faults lie where the loader's reads leave for Lance, so all that the loader does against them
(time-outs, repeats, checksums, reading past its caches) is at work above them.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lake.object_store import is_object_store
from lake.store import Lake
from tools.faults.fault import Fault, FaultDraw, Kind

_TABLE: Final = "trajectories"
_FAILING: Final = frozenset({"slow_down", "reset", "lose_reply", "stall"})
_CUT: Final = frozenset({"truncate", "cut"})


class Faults:
    """Faults that are injected into the reads of one or several lakes; safe to share.

    What a fault meets is the read of an episode, by the path `rows/ADDRESS` or `video/ADDRESS`.

    Args:
        faults: the first that befalls one of the episodes of a read is injected. `lose_reply` is
            as `reset`, and `cut` as `truncate`: of a read no more can be told.
        seed: of them.
    """

    def __init__(self, faults: Sequence[Fault], seed: int = 0) -> None:
        self._draw = FaultDraw(faults, seed)
        self._lock = threading.Lock()
        self._injected: Counter[str] = Counter()

    @property
    def injected(self) -> Mapping[str, int]:
        """Kind -> how often."""
        with self._lock:
            return dict(self._injected)

    def befall(self, what: str, addresses: Sequence[int]) -> tuple[Fault, int, float] | None:
        """The fault of a read of some rows, which of them it meets, and where, in [0, 1)."""
        with self._lock:
            for number, address in enumerate(addresses):
                if drawn := self._draw.draw("GET", f"{what}/{address}"):
                    fault, place = drawn
                    self._injected[fault.kind] += 1
                    return fault, number, place
        return None


def faulty_lake(lake: Lake, faults: Faults) -> Lake:
    """The lake again, with faults in its reads of rows and video of episodes by address."""

    class FaultyLake(Lake):
        """Closes over the faults, for pinned copies of a lake are made from its class."""

        def dataset(self, table: str) -> Any:  # noqa: ANN401 - stands for Lance's dataset
            found = super().dataset(table)
            return _FaultyTable(found, self.uri, faults) if table == _TABLE else found

    return FaultyLake(lake.uri, lake.storage_options, lake.pinned)


class _FaultyTable:
    """A Lance dataset; what the loader reads episodes by is overridden."""

    def __init__(self, table: Any, uri: str, faults: Faults) -> None:  # noqa: ANN401 - as above
        self._table = table
        self._uri = uri
        self._faults = faults

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the dataset has
        return getattr(self._table, name)

    def _take_rows(self, addresses: list[int], columns: list[str]) -> pa.Table:
        met = self._faults.befall("rows", addresses)
        if met is not None:
            self._fail(met[0], rows=True)
        rows: pa.Table = self._table._take_rows(addresses, columns=columns)  # noqa: SLF001 - Lance has no public one
        if met is None:
            return rows
        fault, number, luck = met
        if fault.kind == "flip":
            return _with_flipped_value(rows, number, luck)
        return rows

    def read_blob_ranges(
        self,
        column: str,
        ranges: list[Any],
        **options: Any,  # noqa: ANN401 - those of Lance
    ) -> list[tuple[Any, Any, bytes | None]]:
        met = self._faults.befall("video", [wanted.address for wanted in ranges])
        if met is not None:
            self._fail(met[0])
        found: list[tuple[Any, Any, bytes | None]]
        found = self._table.read_blob_ranges(column, ranges, **options)
        if met is None:
            return found
        fault, number, luck = met
        address, at, data = found[number]
        if data:
            place = int(luck * len(data))
            if fault.kind in _CUT:
                data = data[:place]
            elif fault.kind == "flip":
                data = data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        return [*found[:number], (address, at, data), *found[number + 1 :]]

    def _fail(self, fault: Fault, *, rows: bool = False) -> None:
        """Wait or raise, as the fault has it; rows that are cut short are no rows to Lance."""
        if fault.kind in {"slow", "stall"}:
            threading.Event().wait(fault.hold_s)
        if fault.kind in (_FAILING | _CUT if rows else _FAILING):
            raise OSError(_words(fault.kind, object_store=is_object_store(self._uri)))


def _words(kind: Kind, *, object_store: bool) -> str:
    """What Lance says of it."""
    if not object_store:  # a network mount: ETIMEDOUT, EIO
        what = "timed out (os error 110)" if kind == "stall" else "failed (os error 5)"
        return f"LanceError(IO): Generic LocalFileSystem error: {what}"
    if kind == "slow_down":
        return "LanceError(IO): Generic S3 error: Server returned status code: 503: SlowDown"
    what = "operation timed out" if kind == "stall" else "connection reset by peer"
    return f"LanceError(IO): Generic S3 error: error sending request: {what}"


def _with_flipped_value(rows: pa.Table, number: int, luck: float) -> pa.Table:
    """The table with one bit of one value turned, in a list of numbers of one row."""
    columns = [
        index
        for index, field in enumerate(rows.schema)
        if pa.types.is_list(field.type) and pa.types.is_primitive(field.type.value_type)
    ]
    lists = {index: rows.column(index).combine_chunks() for index in columns}
    filled = [index for index in columns if len(lists[index][number] or ())]
    if not filled:
        return rows
    index = filled[int(luck * len(filled))]
    array = lists[index]
    values = array.values.to_numpy(zero_copy_only=False).copy()
    values[array.offsets[number].as_py() :].view(np.uint8)[0] ^= 1
    changed = pa.ListArray.from_arrays(array.offsets, pa.array(values, array.type.value_type))
    return rows.set_column(index, rows.schema.field(index), changed.cast(array.type))
