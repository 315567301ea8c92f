"""Values of many ROS messages at once: those of one layout are rows of an array of bytes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import unpack_from
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.messages.columns import MOST_ELEMENTS, Block, Columns
from ingest.messages.ros_layout import Layout, Leaf, find_layout
from ingest.messages.ros_types import Encoding, Node

_BLOCK_BYTES: Final = 4 << 20
_BLOCK_MESSAGES: Final = 4096
_MOST_LAYOUTS: Final = 256
_SCALARS: Final = {  # as struct names them
    **dict(zip(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"), "bhiqBHIQ", strict=True)),
    **dict(zip(("bool", "f4", "f8"), "?fd", strict=True)),
    **dict.fromkeys(("time", "duration"), "ii"),
    "utime": "II",
}
_NS: Final = 1_000_000_000
_TIMES: Final = {"time": ("i4", "M8[ns]"), "utime": ("u4", "M8[ns]"), "duration": ("i4", "m8[ns]")}


@dataclass(kw_only=True)
class RosColumns:
    """Gathers the payloads of a channel.

    Attributes:
        nodes: fields of its messages.
        encoding: of its payloads.
    """

    nodes: tuple[Node, ...]
    encoding: Encoding
    _held: list[bytes] = field(default_factory=list)
    _bytes: int = 0
    _columns: Columns = field(default_factory=Columns)
    _layouts: dict[int, list[Layout]] = field(default_factory=dict)

    def add(self, payload: bytes) -> None:
        """Take the next message."""
        self._held.append(payload)
        self._bytes += len(payload)
        if self._bytes >= _BLOCK_BYTES or len(self._held) >= _BLOCK_MESSAGES:
            self._decode()

    def join(self) -> Block:
        """All values."""
        if self._held:
            self._decode()
        return self._columns.join()

    def _decode(self) -> None:
        payloads, self._held, self._bytes = self._held, [], 0
        decoded = np.ones(len(payloads), np.bool_)
        columns, damage = Columns(), ""
        order: list[NDArray[np.int64]] = []
        for numbers, found in self._groups(payloads):
            if isinstance(found, EpisodeError):
                decoded[numbers] = False
                damage = damage or str(found)
                continue
            values, refused = found
            columns.blocks.append(
                Block(decoded=np.ones(len(numbers), np.bool_), values=values, refused=refused)
            )
            order.append(numbers)
        joined = columns.join()
        ordered = joined.values
        if len(order) > 1:
            back = np.argsort(np.concatenate(order))
            ordered = {path: array[back] for path, array in ordered.items()}
        self._columns.blocks.append(
            Block(decoded=decoded, values=ordered, refused=joined.refused, damage=damage)
        )

    def _groups(
        self, payloads: Sequence[bytes]
    ) -> Iterator[
        tuple[NDArray[np.int64], EpisodeError | tuple[dict[str, NDArray[Any]], dict[str, str]]]
    ]:
        """Numbers of messages of one layout, and their values."""
        sizes = np.array([len(payload) for payload in payloads], np.int64)
        for size in np.unique(sizes).tolist():
            left = np.flatnonzero(sizes == size)
            rows = np.frombuffer(b"".join([payloads[n] for n in left.tolist()]), np.uint8)
            rows = rows.reshape(len(left), size)
            known = list(self._layouts.get(size, ()))
            while len(left):
                try:
                    layout = known.pop() if known else self._new_layout(payloads[left[0]])
                except EpisodeError as error:
                    yield left[:1], error
                    left, rows = left[1:], rows[1:]
                    continue
                fits = layout.fits(rows)
                if fits.all():
                    yield left, _values(rows, layout)
                    break
                if fits.any():
                    yield left[fits], _values(rows[fits], layout)
                    left, rows = left[~fits], rows[~fits]

    def _new_layout(self, payload: bytes) -> Layout:
        layout = find_layout(payload, self.nodes, self.encoding)
        if sum(map(len, self._layouts.values())) < _MOST_LAYOUTS:
            self._layouts.setdefault(len(payload), []).append(layout)
        return layout


def _values(
    rows: NDArray[np.uint8], layout: Layout
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    values: dict[str, NDArray[Any]] = {}
    refused: dict[str, str] = {}
    for path, leaf in layout.leaves.items():
        if leaf.shape is None:
            refused[path] = "has inner lists of several lengths"
        elif leaf.kind == "text":
            values[path] = _texts(rows, leaf, leaf.shape)
        elif (elements := int(np.prod(leaf.shape, dtype=np.int64))) > MOST_ELEMENTS:
            refused[path] = f"has {elements} values in a message, more than {MOST_ELEMENTS}"
        else:
            values[path] = numbers_of(rows, leaf, leaf.shape, big_endian=layout.big_endian)
    return values, refused


def numbers_of(
    rows: NDArray[np.uint8], leaf: Leaf, shape: tuple[int, ...], *, big_endian: bool
) -> NDArray[Any]:
    """[n, *shape] in native byte order; times as datetime64[ns], durations as timedelta64[ns]."""
    parts = [rows[:, at : at + count * leaf.size] for at, count in leaf.places if count]
    if not parts:
        dtype = _TIMES[leaf.dtype][1] if leaf.dtype in _TIMES else leaf.dtype
        return np.zeros((len(rows), *shape), dtype)
    packed = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
    order = ">" if big_endian else "<"
    if leaf.dtype == "bool":
        return np.asarray(packed != 0, np.bool_).reshape(len(rows), *shape)
    if leaf.dtype not in _TIMES:
        numbers: NDArray[Any] = packed.view(f"{order}{leaf.dtype}").reshape(len(rows), *shape)
        native: NDArray[Any] = numbers.astype(leaf.dtype, copy=False)
        return native
    seconds, kind = _TIMES[leaf.dtype]
    pairs = packed.view(f"{order}{seconds}").astype(np.int64).reshape(len(rows), *shape, 2)
    stamps: NDArray[np.int64] = pairs[..., 0] * _NS + pairs[..., 1]
    return stamps.view(kind)


def _texts(rows: NDArray[np.uint8], leaf: Leaf, shape: tuple[int, ...]) -> NDArray[np.object_]:
    columns = np.empty((len(rows), len(leaf.places)), object)
    for number, (at, size) in enumerate(leaf.places):
        part = rows[:, at : at + size]
        if (part == part[0]).all():
            columns[:, number] = text_of(part[0].tobytes())
        else:
            columns[:, number] = [text_of(row.tobytes()) for row in part]
    return columns.reshape(len(rows), *shape)


def _time(pair: tuple[int, int], dtype: str) -> np.datetime64 | np.timedelta64:
    kind = np.timedelta64 if dtype == "duration" else np.datetime64
    return kind(pair[0] * _NS + pair[1], "ns")


def text_of(data: bytes) -> str:
    r"""A text; bytes that are not UTF-8 become `\x..`."""
    return data.rstrip(b"\0").decode("utf-8", "backslashreplace")


def fields_of(payload: bytes, layout: Layout) -> Mapping[str, Any]:
    """Values of one message: numbers, texts, arrays; uint8 arrays as views of its bytes."""
    row = np.frombuffer(payload, np.uint8)[None]
    order = ">" if layout.big_endian else "<"
    found: dict[str, Any] = {}
    for path, leaf in layout.leaves.items():
        if leaf.shape is None:
            continue
        if leaf.kind == "text":
            texts = [text_of(payload[at : at + size]) for at, size in leaf.places]
            found[path] = texts if leaf.shape else texts[0]
        elif leaf.dtype == "u1" and len(leaf.shape) == 1 and len(leaf.places) == 1:
            at, count = leaf.places[0]
            found[path] = memoryview(payload)[at : at + count]
        elif leaf.shape:
            found[path] = numbers_of(row, leaf, leaf.shape, big_endian=layout.big_endian)[0]
        else:
            number = unpack_from(order + _SCALARS[leaf.dtype], payload, leaf.places[0][0])
            found[path] = number[0] if leaf.dtype not in _TIMES else _time(number, leaf.dtype)
    return found
