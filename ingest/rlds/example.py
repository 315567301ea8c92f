"""`tf.train.Example` straight from its bytes: lists of floats, integers and byte strings by name.

Sources: TensorFlow `core/example/example.proto` and `feature.proto`, protobuf's wire encoding. Own
reader because the protobuf package makes one Python object per number; packed floats are one copy
here, and integers are decoded in blocks, straight into the type they are stored in.
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
            OverflowError: a value that `dtype` cannot hold.
        """
        out = np.empty(len(self), dtype)
        at = done = 0
        while at < len(self.encoded):
            block = self.encoded[at : at + _BLOCK]
            stop = int(np.flatnonzero(block < 0x80)[-1]) + 1
            values = _varints(block[:stop])
            cast = values.astype(dtype)
            if not np.array_equal(cast.astype(np.int64), values):
                raise OverflowError(f"a value does not fit into {dtype}")
            out[done : done + len(values)] = cast
            at, done = at + stop, done + len(values)
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
    ends = np.flatnonzero(encoded < 0x80)
    longest = int(np.diff(ends, prepend=-1).max(initial=0))
    if len(encoded) and (not len(ends) or ends[-1] != len(encoded) - 1):
        raise ExampleError("a list of integers is cut short")
    if longest > _MAX_VARINT:
        raise ExampleError(f"an integer of {longest} bytes")
    return encoded


def _varints(encoded: NDArray[np.uint8]) -> NDArray[np.int64]:
    ends = np.flatnonzero(encoded < 0x80)
    if len(ends) == len(encoded):
        return encoded.astype(np.int64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        here = np.flatnonzero(lengths > place)
        bits = (encoded[starts[here] + place] & 0x7F).astype(np.uint64)
        values[here] |= bits << np.uint64(7 * place)
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
