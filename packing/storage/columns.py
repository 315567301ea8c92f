"""Rows of one column, as Lance reads them in one call: neighbours merged, in whole chunks."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from packing.spans import Int64s

_HALF_CHUNK_BYTES: Final = 4 << 10  # values lie in chunks of 8 KiB, of which a row begins anywhere


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What is asked for each of P packs: calls to the reader, requests of the store, bytes read."""

    calls: NDArray[Any]
    requests: NDArray[Any]
    read_bytes: NDArray[Any]

    def __add__(self, other: "Reads") -> "Reads":
        return Reads(
            calls=self.calls + other.calls,
            requests=self.requests + other.requests,
            read_bytes=self.read_bytes + other.read_bytes,
        )


def column_reads(
    call: Int64s,
    address: NDArray[np.uint64],
    row_bytes: NDArray[Any],
    *,
    column_bytes: float,
    rows: int,
    block_bytes: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Requests and bytes of reading one column.

    Args:
        call: int64 [n], ascending: rows of one call are read together.
        address: uint64 [n], Lance row addresses (fragment << 32 | row), ascending in each call.
        row_bytes: [n], bytes of each row's value.
        column_bytes: of the whole column.
        rows: in the column.
        block_bytes: rows of one call that lie closer to each other are one request.

    Returns:
        float64 [n] each: 1 where a row opens a request, else 0; the bytes that the row adds.
    """
    mean = column_bytes / max(rows, 1)
    same = (np.diff(call) == 0) & (np.diff(address >> np.uint64(32)) == 0)
    # The difference of unsigned addresses is right where it counts: inside a fragment of a call.
    between = (np.diff(address).astype(np.int64) - 1) * mean
    joined = np.zeros(len(call), np.bool_)
    joined[1:] = same & (between <= block_bytes)
    over = np.full(len(call), min(float(_HALF_CHUNK_BYTES), column_bytes))
    over[1:][joined[1:]] = between[joined[1:]]
    return (~joined).astype(np.float64), row_bytes + over
