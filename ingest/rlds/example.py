"""`tf.train.Example` straight from its bytes: lists of floats, integers and byte strings by name.

Sources: TensorFlow `core/example/example.proto` and `feature.proto`, protobuf's wire encoding. Own
reader: byte strings stay views of the record, floats are copied once, and integers are decoded in
blocks straight into the type they are kept in, which takes half the time that protobuf does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT: Final = 10
_BLOCK: Final = 1 << 20


class ExampleError(ValueError):
    """The bytes are no Example."""


@dataclass(frozen=True)
class FloatList:
    """Float32 values, aligned."""

    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class IntList:
    """Integers as varints, decoded when asked for.

    Attributes:
        encoded: uint8, the varints, complete.
    """

    encoded: NDArray[np.uint8]

    def __len__(self) -> int:
        return int(np.count_nonzero(self.encoded < 0x80))

    def array(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The values as `dtype`, an integer or bool type.

        Raises:
            OverflowError: a value that `dtype` cannot hold (uint64 is stored as int64, and wraps).
        """
        out = np.empty(len(self), dtype)
        at = done = 0
        while at < len(self.encoded):
            values, used = _varints(self.encoded[at : at + _BLOCK])
            cast = values.astype(dtype)
            if not np.array_equal(cast.astype(values.dtype), values):
                raise OverflowError(f"a value does not fit into {dtype}")
            out[done : done + len(values)] = cast
            at, done = at + used, done + len(values)
        return out


Values = FloatList | IntList | list[memoryview]
"""What a feature of an Example holds."""


def parse_example(data: bytes) -> dict[str, Values]:
    """The features of an Example; a name that comes twice counts as its last.

    Raises:
        ExampleError: the bytes are no Example.
    """
    view = memoryview(data)
    found: dict[str, Values] = {}
    for number, features in _parts(view):
        if number == 1:
            for inner, entry in _parts(features):
                if inner == 1:
                    name, values = _entry(entry)
                    found[name] = values
    return found


def _entry(view: memoryview) -> tuple[str, Values]:
    name = ""
    values: Values = []
    for number, part in _parts(view):
        if number == 1:
            try:
                name = bytes(part).decode()
            except UnicodeDecodeError as error:
                raise ExampleError(f"a feature's name is not UTF-8 ({error.reason})") from error
        elif number == 2:
            values = _feature(part)
    return name, values


def _feature(view: memoryview) -> Values:
    found: Values = []
    for kind, part in _parts(view):
        if kind == 1:
            found = [value for number, value in _parts(part) if number == 1]
        elif kind == 2:
            found = FloatList(_floats(part))
        elif kind == 3:
            found = IntList(_integers(part))
    return found


def _floats(view: memoryview) -> NDArray[np.float32]:
    chunks = [part for number, part in _parts(view) if number == 1]
    for chunk in chunks:
        if len(chunk) % 4:
            raise ExampleError(f"a list of floats has {len(chunk)} bytes")
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    return np.frombuffer(
        data, "<f4"
    ).copy()  # the record does not align it, and Arrow asks for that


def _integers(view: memoryview) -> NDArray[np.uint8]:
    chunks = [part for number, part in _parts(view) if number == 1]
    encoded = np.frombuffer(chunks[0] if len(chunks) == 1 else b"".join(chunks), np.uint8)
    if len(encoded) and encoded[-1] >= 0x80:
        raise ExampleError("a list of integers is cut short")
    if _longest_is_over(encoded >= 0x80):
        raise ExampleError(f"an integer of more than {_MAX_VARINT} bytes")
    return encoded


def _longest_is_over(goes_on: NDArray[np.bool_]) -> bool:
    """Whether 10 bytes in a row go on; by doubling, and no further than the data asks for."""
    twice = goes_on[1:] & goes_on[:-1]
    run = twice
    for step in (2, 4):
        if not run.any():
            return False
        run = run[step:] & run[:-step]
    return bool((run[:-2] & twice[8:]).any())


def _varints(encoded: NDArray[np.uint8]) -> tuple[NDArray[Any], int]:
    """The integers that end in `encoded`, and the bytes they take.

    A byte below 0x80 ends an integer; from there its higher bits come first, walking back. Values
    of at most two bytes, which pixels are, stay uint16; others become int64.
    """
    ends = np.flatnonzero(encoded < 0x80)
    if len(ends) == len(encoded):
        return encoded, len(encoded)
    padded = np.concatenate((np.zeros(_MAX_VARINT, np.uint8), encoded))
    ends += _MAX_VARINT
    before = padded[ends - 1]
    goes_on = before >= 0x80
    used = int(ends[-1]) + 1 - _MAX_VARINT
    if (goes_on & (padded[ends - 2] >= 0x80)).any():
        return _wide_varints(padded, ends), used
    values = padded[ends].astype(np.uint16)
    return np.where(goes_on, values << 7 | before & 0x7F, values), used


def _wide_varints(padded: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    values = padded[ends].astype(np.uint64)
    open_ends = np.arange(len(ends))
    for back in range(1, _MAX_VARINT):
        before = padded[ends[open_ends] - back]
        goes_on = before >= 0x80
        open_ends, before = open_ends[goes_on], before[goes_on]
        values[open_ends] = values[open_ends] << np.uint64(7) | (before & 0x7F)
    return values.view(np.int64)


def _parts(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and bytes of each field; of a varint its encoded bytes.

    Raises:
        ExampleError: a field that is cut short or of a kind that protobuf does not know.
    """
    at, size = 0, len(view)
    while at < size:
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(view, at)
            stop = at + length
        elif kind == _VARINT:
            _, stop = _varint(view, at)
        elif kind in {_FIXED32, _FIXED64}:
            stop = at + (4 if kind == _FIXED32 else 8)
        else:
            raise ExampleError(f"a field of unknown kind {kind}")
        if stop > size:
            raise ExampleError("a field is cut short")
        yield tag >> 3, view[at:stop]
        at = stop


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in view[at : at + _MAX_VARINT]:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ExampleError("an integer is cut short or too long")
