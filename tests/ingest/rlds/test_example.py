"""The Example reader against protobuf itself."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.rlds.example import ExampleError, FloatList, IntList, parse_example
from tests.ingest.rlds_files import example_class

_INT64 = st.integers(-(2**63), 2**63 - 1)
_SMALL = st.integers(0, 300)


def _serialised(kind: str, values: list[Any]) -> bytes:
    message = example_class()()
    getattr(message.features.feature["x"], kind).value.extend(values)
    return bytes(message.SerializeToString())


@settings(deadline=None)
@given(values=st.one_of(st.lists(_INT64), st.lists(_SMALL), st.lists(st.one_of(_INT64, _SMALL))))
def test_integers_equal_those_of_protobuf(values: list[int]) -> None:
    found = parse_example(_serialised("int64_list", values))["x"]
    assert isinstance(found, IntList)
    assert len(found) == len(values)
    assert found.array(np.dtype(np.int64)).tolist() == values


@settings(deadline=None)
@given(values=st.lists(st.floats(width=32)))
def test_floats_equal_those_of_protobuf(values: list[float]) -> None:
    found = parse_example(_serialised("float_list", values))["x"]
    assert isinstance(found, FloatList)
    np.testing.assert_array_equal(found.values, np.array(values, np.float32))
    assert found.values.flags.aligned


@settings(deadline=None)
@given(values=st.lists(st.binary(max_size=300), min_size=1))
def test_byte_strings_equal_those_of_protobuf(values: list[bytes]) -> None:
    found = parse_example(_serialised("bytes_list", values))["x"]
    assert isinstance(found, list)
    assert [bytes(value) for value in found] == values


def test_integers_of_many_blocks_come_back() -> None:
    values = np.random.default_rng(0).integers(0, 300, 1 << 20)
    values[[5, 1 << 19]] = -1, 1 << 40
    found = parse_example(_serialised("int64_list", values.tolist()))["x"]
    assert isinstance(found, IntList)
    np.testing.assert_array_equal(found.array(np.dtype(np.int64)), values)


def _field(number: int, kind: int, data: bytes) -> bytes:
    head = bytes([number << 3 | kind])
    return head + bytes([len(data)]) + data if kind == 2 else head + data


def _feature(content: bytes) -> bytes:
    entry = _field(1, 2, b"x") + _field(2, 2, content)
    return _field(1, 2, _field(1, 2, entry))


def test_values_that_are_not_packed_are_read() -> None:
    floats = b"".join(_field(1, 5, np.float32(v).tobytes()) for v in (1.5, -2.0))
    found = parse_example(_feature(_field(2, 2, floats)))["x"]
    assert isinstance(found, FloatList)
    assert found.values.tolist() == [1.5, -2.0]
    ints = _field(1, 0, b"\x05") + _field(1, 0, b"\xac\x02")
    whole = parse_example(_feature(_field(3, 2, ints)))["x"]
    assert isinstance(whole, IntList)
    assert whole.array(np.dtype(np.int32)).tolist() == [5, 300]


def test_a_value_that_a_type_cannot_hold_is_refused() -> None:
    found = parse_example(_serialised("int64_list", [1, 300]))["x"]
    assert isinstance(found, IntList)
    for dtype in ("uint8", "int8", "bool"):
        with pytest.raises(OverflowError):
            found.array(np.dtype(dtype))


@pytest.mark.parametrize(
    "content",
    [
        _field(3, 2, _field(1, 2, b"\x80")),
        _field(3, 2, _field(1, 2, b"\x80" * 10 + b"\x01")),
        _field(2, 2, _field(1, 2, b"abc")),
        _field(2, 2, b"\x0a\x7fa"),
        _field(2, 2, b"\x0b"),
        b"\xff" * 12,
    ],
)
def test_damaged_lists_are_no_example(content: bytes) -> None:
    with pytest.raises(ExampleError):
        parse_example(_feature(content))
