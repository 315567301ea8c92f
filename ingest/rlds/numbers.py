"""Numbers of an Example in their declared type and shape."""

import json
import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.rlds.columns import Column, row_shape
from ingest.rlds.example import FloatList, IntList
from ingest.rlds.features import Leaf

_DTYPES: Final = frozenset(
    (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
)
_MAX_ROW_BYTES: Final = 1 << 30


def read_numbers(column: Column, leaf: Leaf | None, rows: int) -> tuple[NDArray[Any], str]:
    """Values as [rows, *shape], and a sentence where their type is not the declared one.

    Numbers stay as declared where that is exact (TFDS writes float64 as float32, small integers
    as int64), else as stored. Without a declaration the shape of a row is [n], or () where n = 1.

    Raises:
        EpisodeError: they do not fill the rows, or are of no type that can be kept.
    """
    if isinstance(column.values, list):
        array = _buffers(column, leaf, rows)
        return array, ""
    dtype = leaf.dtype if leaf else ""
    if isinstance(column.values, FloatList):
        values, note = _floats(column.values, dtype)
    else:
        values, note = _integers(column.values, dtype)
    return values.reshape(rows, *row_shape(column, leaf, rows, len(values))), note


def _floats(values: FloatList, declared: str) -> tuple[NDArray[Any], str]:
    stored = values.values
    if declared in {"float16", "float64"}:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = stored.astype(declared)
        if np.array_equal(cast.astype(np.float32), stored, equal_nan=True):
            return cast, ""
        return stored, f"declared {declared}, which cannot hold the float32 that is stored"
    return stored, "" if declared in {"", "float32"} else f"declared {declared}, stored as float32"


def _integers(values: IntList, declared: str) -> tuple[NDArray[Any], str]:
    is_known = declared in _DTYPES and not declared.startswith("float")
    try:
        return values.array(np.dtype(declared if is_known else np.int64)), (
            "" if is_known or not declared else f"declared {declared}, stored as int64"
        )
    except OverflowError as error:
        return values.array(np.dtype(np.int64)), f"declared {declared}, but {error}; int64 is kept"


def _buffers(column: Column, leaf: Leaf | None, rows: int) -> NDArray[Any]:
    """Tensors stored as buffers (`encoding` bytes or zlib), one per row."""
    assert isinstance(column.values, list)
    if leaf is None or leaf.dtype not in _DTYPES or None in leaf.shape:
        raise EpisodeError(
            "buffers whose type and shape are not declared",
            reason="unknown-buffers",
            stream=column.name,
        )
    dtype = np.dtype(leaf.dtype).newbyteorder("<")
    shape = tuple(size or 0 for size in leaf.shape)
    wanted = math.prod(shape) * dtype.itemsize
    if len(column.values) != rows or not 0 < wanted <= _MAX_ROW_BYTES:
        raise EpisodeError(
            f"{len(column.values)} buffers of {wanted} bytes for {rows} rows",
            reason="wrong-count",
            stream=column.name,
        )
    parts = [_buffer(data, leaf.encoding, wanted, column) for data in column.values]
    array = np.frombuffer(b"".join(parts), dtype).reshape(rows, *shape)
    return array.astype(leaf.dtype, copy=False)


def _buffer(data: memoryview, encoding: str, wanted: int, column: Column) -> bytes | memoryview:
    found: bytes | memoryview = data
    if encoding == "zlib":
        try:
            found = zlib.decompressobj().decompress(data, wanted + 1)
        except zlib.error as error:
            raise EpisodeError(
                f"a buffer is no zlib data ({error})", reason="bad-buffer", stream=column.name
            ) from error
    if len(found) != wanted:
        raise EpisodeError(
            f"a buffer of {len(found)} bytes where {wanted} are declared",
            reason="bad-buffer",
            stream=column.name,
        )
    return found


def fold_rows(column: Column, items: Sequence[Any]) -> list[Any]:
    """Put the parts of a ragged column into nested lists, one per step.

    Raises:
        EpisodeError: the row lengths do not add up to the parts.
    """
    for lengths in reversed(column.row_lengths):
        if int(lengths.sum()) != len(items):
            raise EpisodeError(
                f"{len(items)} values for row lengths that add up to {lengths.sum()}",
                reason="bad-row-lengths",
                stream=column.name,
            )
        stops = np.cumsum(lengths)
        items = [
            list(items[stop - length : stop])
            for stop, length in zip(stops.tolist(), lengths.tolist(), strict=True)
        ]
    return list(items)


def as_json(rows: Sequence[Any]) -> NDArray[Any]:
    """Rows of varying length as JSON text, object array of str [T]."""
    texts = np.empty(len(rows), object)
    texts[:] = [json.dumps(row, ensure_ascii=False) for row in rows]
    return texts
