"""Parquet columns as numpy arrays of shape [T, *shape], bit for bit, whatever list type they use.

The same vector is met as `fixed_size_list`, `list`, `large_list` and lists of lists, and as float
or double. Nothing is cast and nothing is filled: a null is marked in a validity mask.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.errors import EpisodeError

_LIST_TYPES: Final = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)


@dataclass(frozen=True, kw_only=True)
class Column:
    """Values of one column.

    Attributes:
        values: [T, *shape]; text as an object array of str.
        valid: bool [T], False where the row is null, or None where no row is.
        as_json: True where nested non-numeric values are kept as JSON text.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None = None
    as_json: bool = False


def read_column(name: str, column: pa.ChunkedArray) -> Column:
    """Turn a column of T rows into an array.

    Raises:
        EpisodeError: `ragged-feature` where rows differ in length, `unsupported-type` where the
            type has no numpy counterpart.
    """
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # older pyarrow keeps one chunk for some types
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    element = array.type
    while isinstance(element, _LIST_TYPES):
        element = element.value_type
    valid = None if array.null_count == 0 else _not_null(array)
    if pa.types.is_string(element) or pa.types.is_large_string(element):
        if array.type == element:
            text = ["" if value is None else value for value in _python_values(name, array)]
            return Column(values=np.array(text, dtype=object), valid=valid)
    elif _is_number(element):
        return Column(values=_numbers(name, array, valid), valid=valid)
    if pa.types.is_null(element):
        raise EpisodeError(f"{name}: every row is null", reason="unsupported-type", stream=name)
    return Column(values=_json_text(name, array), valid=valid, as_json=True)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _not_null(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _numbers(name: str, array: pa.Array, valid: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Numeric rows as [T, *shape]; null rows hold NaN or zero and are masked by the caller."""
    rows = len(array)
    if valid is not None and isinstance(array.type, _LIST_TYPES):
        # A null list has no elements to reshape: read the others, then put them in their places.
        dense = _numbers(name, array.filter(pa.array(valid)), None)
        spread = np.zeros((rows, *dense.shape[1:]), dense.dtype)
        if dense.dtype.kind == "f":
            spread.fill(np.nan)
        spread[valid] = dense
        return spread
    shape: list[int] = []
    outer = rows
    while isinstance(array.type, _LIST_TYPES):
        if array.null_count:
            raise EpisodeError(
                f"{name}: lists inside a row are null", reason="ragged-feature", stream=name
            )
        lengths = np.unique(pc.list_value_length(array).to_numpy(zero_copy_only=False))
        if len(lengths) > 1:
            raise EpisodeError(
                f"{name}: rows have {lengths[0]} to {lengths[-1]} elements, one length is needed",
                reason="ragged-feature",
                stream=name,
            )
        shape.append(int(lengths[0]) if len(lengths) else 0)
        array = array.flatten()
        outer *= shape[-1]
    if array.null_count:
        array = _fill_nulls(name, array, nested=bool(shape))
    values = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    return values.reshape(rows, *shape)


def _fill_nulls(name: str, array: pa.Array, *, nested: bool) -> pa.Array:
    """Give nulls a storage value: NaN for floats; elements of vectors have no mask of their own."""
    if pa.types.is_floating(array.type):
        return array.fill_null(float("nan"))
    if nested:
        raise EpisodeError(
            f"{name}: {array.null_count} elements inside vectors are null",
            reason="null-elements",
            stream=name,
        )
    return array.fill_null(False if pa.types.is_boolean(array.type) else 0)


def _python_values(name: str, array: pa.Array) -> list[Any]:
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError as error:
        raise EpisodeError(
            f"{name}: text that is not UTF-8 ({error})", reason="bad-text", stream=name
        ) from error
    return values


def _json_text(name: str, array: pa.Array) -> NDArray[Any]:
    try:
        text = [
            json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            for value in _python_values(name, array)
        ]
    except (TypeError, ValueError) as error:
        raise EpisodeError(
            f"{name}: {array.type} has no place in a feature ({error})",
            reason="unsupported-type",
            stream=name,
        ) from error
    return np.array(text, dtype=object)
