"""Values come back from Arrow bit for bit, and what would not is refused."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from lake.errors import CorruptDataError, SpecError
from lake.feature_arrays import check_values, feature_checksum, one_row, row_values
from lake.spec import DTYPES, FeatureSpec
from lake.tables import feature_fields

NUMERIC = [dtype for dtype in DTYPES if dtype != "string"]


def through_arrow(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    spec = FeatureSpec(name="x", source_name="x", dtype=dtype, shape=values.shape[1:])
    field = feature_fields(spec)[0]
    column = pa.concat_arrays([one_row(values, field.type.value_type)] * 2)
    return row_values(column, 1, dtype).reshape(values.shape)


@pytest.mark.parametrize("dtype", NUMERIC)
@given(data=st.data())
def test_numbers_keep_every_bit(dtype: str, data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    values = data.draw(hnp.arrays(dtype, shape))
    back = through_arrow(values, dtype)
    assert back.dtype == values.dtype
    assert back.tobytes() == values.tobytes()


def test_nan_payloads_and_signed_zeros_survive() -> None:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001, 0x7F800000], np.uint32)
    values = bits.view(np.float32)
    assert through_arrow(values, "float32").view(np.uint32).tolist() == bits.tolist()


def test_strided_and_fortran_arrays_are_stored_in_row_order() -> None:
    values = np.asfortranarray(np.arange(12.0, dtype=np.float64).reshape(4, 3))[::2]
    assert through_arrow(values, "float64").tolist() == [[0, 1, 2], [6, 7, 8]]


def test_text_keeps_empty_and_foreign_strings() -> None:
    values = np.array(["", "é", "日本", "a\0b", " "], dtype=object)
    assert through_arrow(values, "string").tolist() == values.tolist()


def test_features_without_elements() -> None:
    values = np.empty((3, 0), np.float32)
    assert through_arrow(values, "float32").shape == (3, 0)


def test_null_elements_are_corruption() -> None:
    column = pa.array([[1.0, None]], pa.large_list(pa.float32()))
    with pytest.raises(CorruptDataError, match="1 null"):
        row_values(column, 0, "float32")


def test_the_checksum_covers_values_and_validity() -> None:
    values = np.arange(6, dtype=np.float32)
    valid = np.ones(6, np.bool_)
    changed = valid.copy()
    changed[2] = False
    sums = {
        feature_checksum(values, None),
        feature_checksum(values, valid),
        feature_checksum(values, changed),
        feature_checksum(np.nextafter(values, np.float32(9)), valid),
    }
    assert len(sums) == 4


@pytest.mark.parametrize(
    ("dtype", "values", "valid", "message"),
    [
        ("string", np.array(["a", None], dtype=object), None, "holds NoneType, not str"),
        ("string", np.array(["a", 3], dtype=object), None, "holds int, not str"),
        ("float32", np.zeros(2, np.float32), np.array([True, False]), "must be NaN"),
        ("float64", np.zeros((2, 2)), np.array([False, True]), "must be NaN"),
        ("int64", np.zeros(2, np.int64), np.array([1, 0]), "not bool"),
    ],
)
def test_what_could_not_be_told_from_good_data_is_refused(
    dtype: str, values: NDArray[Any], valid: NDArray[Any] | None, message: str
) -> None:
    spec = FeatureSpec(name="x", source_name="x", dtype=dtype, shape=values.shape[1:])
    with pytest.raises(SpecError, match=message):
        check_values("episode e", spec, values, valid)


def test_nan_at_invalid_steps_and_any_integer_are_accepted() -> None:
    valid = np.array([True, False])
    floats = np.array([1.0, np.nan])
    check_values(
        "e", FeatureSpec(name="x", source_name="x", dtype="float64", shape=()), floats, valid
    )
    integers = np.array([1, 0])
    check_values(
        "e", FeatureSpec(name="x", source_name="x", dtype="int64", shape=()), integers, valid
    )


def test_text_that_is_not_unicode_is_refused() -> None:
    spec = FeatureSpec(name="note", source_name="note", dtype="string", shape=())
    with pytest.raises(SpecError, match="note holds text that is not Unicode"):
        check_values("e", spec, np.array(["fine", "\udcff"], object), None)
