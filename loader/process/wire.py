"""A batch in one buffer: a header, then its arrays, each aligned to 64 bytes.

The layout is fixed before the arrays are filled, so that pictures are decoded straight into the
buffer that crosses to the consumer. Nothing in it is executable (no pickle).

Layout: `HRPB`, a version byte, 3 zero bytes, the length of the JSON header as uint64 (little
endian), the header, then the arrays. The header holds the scalars of the batch, for each array
name, dtype, shape and byte offset from the start of the buffer, and the batch's bad spans.
"""

import functools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from loader.bad_spans import BadSpan
from loader.batch import ARRAY_FIELDS, SCALAR_FIELDS, NumpyBatch, PackedBatch
from loader.errors import BatchError

_MAGIC: Final = b"HRPB"
_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<4sB3xQ")
_ALIGNMENT: Final = 64


class ArrayPlace(NamedTuple):
    """Where one array lies in the buffer: `nbytes` bytes from `offset`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The layout of one batch in a buffer of at least `nbytes` bytes, with what is no array."""

    scalars: Mapping[str, Any]
    bad_spans: tuple[BadSpan, ...]
    places: tuple[ArrayPlace, ...]
    header: bytes
    nbytes: int

    @classmethod
    def plan(
        cls,
        scalars: Mapping[str, Any],
        arrays: Mapping[str, tuple[str, tuple[int, ...]]],
        bad_spans: Sequence[BadSpan] = (),
    ) -> Self:
        """Lay out arrays given as name -> (dtype, shape), in the given order."""
        # Offsets depend on the length of the header, which holds the offsets: count them from the
        # end of the header instead, and find that end once the text is known.
        relative, entries = 0, []
        for name, (dtype, shape) in arrays.items():
            entries.append((name, dtype, shape, relative))
            relative = _aligned(relative + _nbytes(dtype, shape))
        bad = [span.to_dict() for span in bad_spans]
        text = json.dumps(
            {"scalars": dict(scalars), "arrays": entries, "bad_spans": bad}, separators=(",", ":")
        ).encode()
        header = _PREFIX.pack(_MAGIC, _VERSION, len(text)) + text
        start = _aligned(len(header))
        return cls(
            scalars=scalars,
            bad_spans=tuple(bad_spans),
            places=_places(entries, start),
            header=header,
            nbytes=start + relative,
        )

    def views(self, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Write the header and give each array as a writable view of the buffer.

        Raises:
            BatchError: the buffer is too small.
        """
        if len(buffer) < self.nbytes:
            raise BatchError(f"a batch of {self.nbytes} bytes in a buffer of {len(buffer)}")
        buffer[: len(self.header)] = np.frombuffer(self.header, np.uint8)
        return {place.name: _view(buffer, place) for place in self.places}

    @classmethod
    def parse(cls, buffer: NDArray[np.uint8]) -> Self:
        """Read the layout that `views` wrote.

        Raises:
            BatchError: the buffer holds no batch, a cut one, or one of another layout.
        """
        if len(buffer) < _PREFIX.size:
            raise BatchError(f"no batch in a buffer of {len(buffer)} bytes")
        magic, version, length = _PREFIX.unpack(buffer[: _PREFIX.size].tobytes())
        if magic != _MAGIC or version != _VERSION:
            raise BatchError(f"not a batch of layout {_VERSION}: {magic!r}, layout {version}")
        header = buffer[: _PREFIX.size + length].tobytes()
        try:
            content: dict[str, Any] = json.loads(header[_PREFIX.size :])
            places = _places(content["arrays"], _aligned(len(header)))
            scalars: dict[str, Any] = content["scalars"]
            bad_spans = tuple(BadSpan.from_dict(span) for span in content["bad_spans"])
        except (ValueError, KeyError, TypeError) as error:
            raise BatchError(f"a batch's header cannot be parsed ({error})") from error
        stop = max((place.offset + place.nbytes for place in places), default=len(header))
        nbytes = _aligned(stop)
        if stop > len(buffer) or any(min(place.shape) < 0 for place in places):
            raise BatchError(f"a batch of {nbytes} bytes was cut to {len(buffer)}")
        return cls(
            scalars=scalars, bad_spans=bad_spans, places=places, header=header, nbytes=nbytes
        )


def read_batch(buffer: NDArray[np.uint8]) -> NumpyBatch:
    """The batch in a buffer; its arrays are views that keep the buffer alive.

    Raises:
        BatchError: see `Frame.parse`; or the arrays are not those of a batch.
    """
    frame = Frame.parse(buffer)
    return batch_of(frame, {place.name: _view(buffer, place) for place in frame.places})


def batch_of(frame: Frame, arrays: Mapping[str, Any]) -> PackedBatch[Any]:
    """Build the dataclass from a layout and its arrays, of numpy or of torch."""
    missing = [n for n in ARRAY_FIELDS if n not in arrays]
    missing += [n for n in SCALAR_FIELDS if n not in frame.scalars]
    if missing:
        raise BatchError(f"a batch lacks {', '.join(missing)}")
    buckets = sum(name.startswith("images.") for name in arrays)
    return PackedBatch(
        **{name: arrays[name] for name in ARRAY_FIELDS},
        **{name: frame.scalars[name] for name in SCALAR_FIELDS},
        images=tuple(arrays[f"images.{number}"] for number in range(buckets)),
    )


def _view(buffer: NDArray[np.uint8], place: ArrayPlace) -> NDArray[Any]:
    flat = buffer[place.offset : place.offset + place.nbytes]
    return flat.view(place.dtype).reshape(place.shape)


def _places(entries: list[Any], start: int) -> tuple[ArrayPlace, ...]:
    return tuple(
        ArrayPlace(name, dtype, tuple(shape), start + relative, _nbytes(dtype, shape))
        for name, dtype, shape, relative in entries
    )


def _nbytes(dtype: str, shape: Sequence[int]) -> int:
    return math.prod(shape) * _itemsize(dtype)


@functools.cache
def _itemsize(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
