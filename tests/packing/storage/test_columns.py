"""Requests for the rows of a column."""

import numpy as np

from packing.storage.columns import Reads, column_reads

_FRAGMENT = 1 << 32


def test_rows_near_each_other_are_one_request() -> None:
    # Of 1000 rows of 100 bytes: 41 rows between are 4.1 kB, too far for a block of 4096 bytes.
    address = np.array([0, 1, 41, 83, _FRAGMENT + 84, 0, 1], np.uint64)
    call = np.array([0, 0, 0, 0, 0, 1, 1])
    size = np.array([10, 20, 30, 40, 50, 60, 70])
    opened, read = column_reads(
        call, address, size, column_bytes=100_000.0, rows=1000, block_bytes=4096
    )
    assert opened.tolist() == [1, 0, 0, 1, 1, 1, 0]
    # An opened request reads half a chunk beside its row, a joined one what lies between.
    beside = [4096, 0, 3900, 4096, 4096, 4096, 0]
    assert read.tolist() == [a + b for a, b in zip(size.tolist(), beside, strict=True)]


def test_a_column_smaller_than_a_chunk_is_read_whole_at_most() -> None:
    opened, read = column_reads(
        np.array([0]),
        np.array([3], np.uint64),
        np.array([8]),
        column_bytes=80.0,
        rows=10,
        block_bytes=4096,
    )
    assert (opened.tolist(), read.tolist()) == ([1], [88])


def test_reads_add_up() -> None:
    one = Reads(calls=np.array([1, 0]), requests=np.array([2, 3]), read_bytes=np.array([5, 7]))
    both = one + one
    assert (both.calls.tolist(), both.requests.tolist()) == ([2, 0], [4, 6])
    assert both.read_bytes.tolist() == [10, 14]
