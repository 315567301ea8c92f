"""A digest of JSON and Arrow tables that is the same on every machine and for every chunking."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from packing.errors import PlanError


def canonical_json(value: Any) -> str:  # noqa: ANN401 - whatever JSON takes
    """Sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def content_digest(header: Any, tables: Sequence[pa.Table]) -> str:  # noqa: ANN401 - as above
    """First 32 hex digits of SHA-256 over canonical JSON, and column by column over tables.

    A column counts with its name, its lengths where it holds lists or text, and its values, little
    endian.

    Raises:
        PlanError: a null, which the tables of a plan do not have.
    """
    digest = hashlib.sha256(canonical_json(header).encode())
    for table in tables:
        _update(digest, table)
    return digest.hexdigest()[:32]


def table_digest(table: pa.Table) -> bytes:
    """SHA-256 (32 bytes) over a table alone, column by column as in `content_digest`.

    Raises:
        PlanError: a null.
    """
    digest = hashlib.sha256()
    _update(digest, table)
    return digest.digest()


def _update(digest: "hashlib._Hash", table: pa.Table) -> None:
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"\0{name}\0{table.num_rows}\0".encode())
        _update_column(digest, name, column)


def _update_column(digest: "hashlib._Hash", name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        raise PlanError(f"column {name} has {column.null_count} nulls; a plan has none")
    values = column.combine_chunks()
    if pa.types.is_list(values.type):
        digest.update(_little_endian(pc.list_value_length(values)))
        values = values.flatten()
    if pa.types.is_string(values.type):
        digest.update(_little_endian(pc.binary_length(values)))
    if pa.types.is_string(values.type) or pa.types.is_fixed_size_binary(values.type):
        digest.update(_joined(values))
    else:
        digest.update(_little_endian(values))


def _joined(values: pa.Array) -> memoryview:
    """The bytes of all values one after the other, where they lie."""
    data = values.buffers()[-1]
    if data is None or not len(values):
        return memoryview(b"")
    if pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        begin, end = values.offset * width, (values.offset + len(values)) * width
    else:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :]
        begin, end = int(offsets[0]), int(offsets[len(values)])
    return memoryview(data)[begin:end]


def _little_endian(values: pa.Array) -> bytes:
    array: np.ndarray[Any, np.dtype[Any]] = values.to_numpy(zero_copy_only=False)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
