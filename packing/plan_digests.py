"""Digests of a plan's tables in parts, so that a part can be read alone and still be checked.

The hash of a plan is over all of it: to check it is to read everything. So beside the tables of a
saved plan lies a small one, `digests`, with a row per chunk:

    table      string      `packs`, `episodes` or `texts`
    first_row  int64       of the chunk
    num_rows   int64
    sha256     binary(32)  over all columns of the chunk (see `table_digest`), row addresses too

Chunks of a table follow each other from row 0 to its end. A last row, of table `header` and
without rows, is over the JSON of the plan's header and all rows before, so that this table cannot
be damaged unseen either.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.errors import PlanError
from packing.plan import Plan
from packing.plan_hash import table_digest

DIGESTS_SCHEMA: Final = pa.schema(
    [
        ("table", pa.string()),
        ("first_row", pa.int64()),
        ("num_rows", pa.int64()),
        ("sha256", pa.binary(32)),
    ]
)
_HEADER: Final = "header"
_MOST_ROWS: Final = 1024
_MOST_SPANS: Final = 1 << 16  # of a chunk of packs: about 4 MB in memory


def digests_of(plan: Plan) -> pa.Table:
    """The table `digests` of a plan."""
    rows: list[tuple[str, int, int, bytes]] = []
    weights = {"packs": pc.list_value_length(plan.packs["span_id"]).to_numpy()}
    for name in ("packs", "episodes", "texts"):
        table: pa.Table = getattr(plan, name).combine_chunks()
        for first, stop in _chunks(table.num_rows, weights.get(name)):
            part = table.slice(first, stop - first)
            rows.append((name, first, stop - first, table_digest(part)))
    chunks = pa.table(list(zip(*rows, strict=True)), schema=DIGESTS_SCHEMA)
    last = [[_HEADER], [0], [0], [_header_digest(plan.header.to_json(), chunks)]]
    return pa.concat_tables([chunks, pa.table(last, schema=DIGESTS_SCHEMA)]).combine_chunks()


def match_header(digests: pa.Table, header_json: str) -> bool:
    """Whether the table `digests` is undamaged, and that of the plan with this header."""
    chunks, last = digests[:-1], digests[-1:].to_pylist()
    if any(column.null_count for column in digests.columns):
        return False
    if not last or last[0]["table"] != _HEADER:
        return False
    known: bytes = last[0]["sha256"]
    return known == _header_digest(header_json, chunks)


def _header_digest(header_json: str, chunks: pa.Table) -> bytes:
    return hashlib.sha256(header_json.encode() + table_digest(chunks)).digest()


def _chunks(rows: int, spans: NDArray[Any] | None) -> Iterator[tuple[int, int]]:
    """[first, stop) of chunks with at most so many rows, and spans where there are several rows."""
    ends = None if spans is None else np.cumsum(spans, dtype=np.int64)
    first = 0
    while first < rows:
        stop = min(first + _MOST_ROWS, rows)
        if ends is not None:
            before = int(ends[first - 1]) if first else 0
            fits = int(np.searchsorted(ends, before + _MOST_SPANS, side="right"))
            stop = min(stop, max(fits, first + 1))
        yield first, stop
        first = stop


@dataclass(frozen=True, kw_only=True)
class ChunkDigests:
    """The chunks of one table.

    Attributes:
        first_row: int64 [chunks + 1], where chunks begin, and the end of the table.
        sha256: of each chunk.
    """

    first_row: NDArray[np.int64]
    sha256: tuple[bytes, ...]

    @classmethod
    def of(cls, digests: pa.Table, table: str) -> Self:
        """The chunks of a table, from the table `digests`.

        Raises:
            PlanError: they do not follow each other: they are damaged.
        """
        rows = digests.filter(pc.equal(digests["table"], table))
        first = rows["first_row"].to_numpy()
        ends = first + rows["num_rows"].to_numpy()
        begins = np.concatenate([np.zeros(1, np.int64), ends])
        if not np.array_equal(begins[:-1], first):
            raise PlanError(f"its digests of table {table} do not follow each other")
        return cls(first_row=begins, sha256=tuple(rows["sha256"].to_pylist()))

    def first_damaged(self, rows: pa.Table, first: int, stop: int) -> tuple[int, int] | None:
        """The first of the chunks in [first, stop) that `rows` does not hold as it was saved."""
        number = int(np.searchsorted(self.first_row, first))
        while (at := int(self.first_row[number])) < stop:
            until = int(self.first_row[number + 1])
            chunk = rows.slice(at - first, until - at)
            if chunk.num_rows != until - at or table_digest(chunk) != self.sha256[number]:
                return at, until
            number += 1
        return None

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return int(self.first_row[-1])
