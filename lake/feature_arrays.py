"""Feature values as Arrow lists and back, bit for bit, with the checksum that guards them."""

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lake.episode import feature_bytes
from lake.errors import CorruptDataError, SpecError
from lake.spec import FeatureSpec


def one_row(values: NDArray[Any], item: pa.DataType) -> pa.LargeListArray:
    """A list array of length 1 that holds the flattened values; aligned numbers are not copied.

    Lance panics on buffers that are not aligned to their elements, as views into a file's bytes
    are.
    """
    flat = values.ravel()
    if not flat.flags.aligned:
        flat = flat.copy()
    items = pa.array(flat.tolist() if pa.types.is_string(item) else flat, item)
    return pa.LargeListArray.from_arrays(pa.array([0, len(items)], pa.int64()), items)


def row_values(column: pa.Array, row: int, dtype: str) -> NDArray[Any]:
    """Flat values of one row of a list column; read-only where they could be borrowed.

    Raises:
        CorruptDataError: null elements, which are never written.
    """
    items = column[row].values
    if items.null_count:
        raise CorruptDataError(f"{items.null_count} null elements")
    if dtype == "string":
        return np.array(items.to_pylist(), dtype=object)
    values: NDArray[Any] = items.to_numpy(zero_copy_only=False)
    return values


def feature_checksum(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> int:
    """XXH3-64 of `feature_bytes`, then of the validity where there is one."""
    digest = xxhash.xxh3_64(feature_bytes(values))
    if valid is not None:
        digest.update(np.ascontiguousarray(valid).tobytes())
    return digest.intdigest()


def check_values(
    where: str, spec: FeatureSpec, values: NDArray[Any], valid: NDArray[np.bool_] | None
) -> None:
    """Refuse what could not be told from good data later.

    Raises:
        SpecError: text that is not `str` or not Unicode, a validity that is not bool, or a float at
            an invalid step that is not NaN.
    """
    if spec.dtype == "string":
        odd = {type(item).__name__ for item in values.ravel().tolist()} - {"str"}
        if odd:
            raise SpecError(f"{where}: feature {spec.name} holds {', '.join(sorted(odd))}, not str")
        try:
            feature_bytes(values)
        except UnicodeEncodeError as error:
            raise SpecError(
                f"{where}: feature {spec.name} holds text that is not Unicode ({error.reason})"
            ) from error
    if valid is None:
        return
    if valid.dtype != np.bool_:
        raise SpecError(f"{where}: validity of {spec.name} is {valid.dtype}, not bool")
    if spec.dtype.startswith("float") and not np.isnan(values[~valid]).all():
        raise SpecError(
            f"{where}: feature {spec.name} has numbers at invalid steps; a float that was not"
            " recorded must be NaN"
        )
