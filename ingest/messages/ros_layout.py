"""Where the values of one ROS message lie in its bytes.

Messages of a channel mostly have one layout: it depends on nothing but the lengths of texts and
sequences in them, so that it is found once, and then holds for every message of the same size with
the same lengths at the same places (its guards).

Sources: OMG DDS-XTypes 1.3, 7.4 (CDR, its encapsulation header); wiki.ros.org/msg (ROS 1).
"""

from dataclasses import dataclass, field
from struct import unpack_from
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.messages.ros_types import Encoding, Node

_MOST_PLACES: Final = 65_536
_ENCAPSULATIONS: Final = {b"\0\0": True, b"\0\1": False}  # plain CDR: whether big endian
_HEADER: Final = 4


@dataclass(slots=True)
class Leaf:
    """The places of all values at one path.

    Attributes:
        kind: `numbers` or `text`.
        dtype: as in `Node`.
        size: bytes of an element of numbers.
        shape: of the values, () for a single one; None where inner lengths differ.
        places: offset and count of numbers, or offset and bytes of a text.
    """

    kind: Literal["numbers", "text", "struct"]
    dtype: str
    size: int
    shape: tuple[int, ...] | None
    places: list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Of one message.

    Attributes:
        leaves: path -> its places.
        big_endian: of numbers.
        guards: int64 [G], offsets of the bytes that must be the same.
        guarded: uint8 [G], those bytes.
    """

    leaves: dict[str, Leaf]
    big_endian: bool
    guards: NDArray[np.int64]
    guarded: NDArray[np.uint8]

    def fits(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which messages, uint8 [n, size], have this layout: bool [n]."""
        found: NDArray[np.bool_] = (rows[:, self.guards] == self.guarded).all(axis=1)
        return found

    def fits_one(self, payload: bytes) -> bool:
        """Whether one message of the same size has this layout."""
        found = np.frombuffer(payload, np.uint8)[self.guards]
        return bool((found == self.guarded).all())


def find_layout(payload: bytes, nodes: tuple[Node, ...], encoding: Encoding) -> Layout:
    """Walk one message; what lies behind its last field is not looked at.

    Raises:
        EpisodeError: it is shorter than its lengths say, no plain CDR, or has more than 65,536
            structures and texts.
    """
    walk = _Walk(payload=payload)
    start = 0
    if encoding == "cdr":
        big_endian = _ENCAPSULATIONS.get(payload[:2])
        if len(payload) < _HEADER or big_endian is None:
            raise EpisodeError(
                f"begins with {payload[:_HEADER].hex() or 'nothing'}, which is no plain CDR",
                reason="bad-message",
            )
        walk.big_endian, walk.aligned = big_endian, True
        walk.length_format = ">I" if big_endian else "<I"
        walk.guards += [0, 1]
        start = _HEADER
    end = walk.struct(nodes, start, ())
    if end > len(payload):
        raise EpisodeError(f"{len(payload)} bytes, its fields need {end}", reason="bad-message")
    guards = np.array(walk.guards, np.int64)
    return Layout(
        leaves=walk.leaves,
        big_endian=walk.big_endian,
        guards=guards,
        guarded=np.frombuffer(payload, np.uint8)[guards],
    )


@dataclass(slots=True, kw_only=True)
class _Walk:
    payload: bytes
    big_endian: bool = False
    aligned: bool = False
    length_format: str = "<I"
    leaves: dict[str, Leaf] = field(default_factory=dict)
    guards: list[int] = field(default_factory=list)
    places: int = 0

    def struct(self, nodes: tuple[Node, ...], at: int, dims: tuple[int, ...]) -> int:
        """Walk fields from `at`, inside sequences of `dims` elements; where they end."""
        aligned = self.aligned
        for node in nodes:
            count, kind = node.count, node.kind
            if count is not None and count < 0:
                at, count = self.elements(at, node)
            inner = dims if count is None else (*dims, count)
            if kind == "numbers":
                number = 1 if count is None else count
                if aligned and number:
                    at += (_HEADER - at) % node.align
                self.put(node, (at, number), inner)
                at += number * node.size
            elif kind == "text":
                for _ in range(1 if count is None else count):
                    at, size = self.length(at, node.path)
                    self.put(node, (at, size), inner)
                    at += size
                if count == 0:
                    self.put(node, None, inner)
            elif count is None:
                at = self.struct(node.fields, at, inner)
            else:
                for _ in range(count):
                    at = self.struct(node.fields, at, inner)
                if not count:
                    self.nothing(node.fields, inner)
        return at

    def elements(self, at: int, node: Node) -> tuple[int, int]:
        """Where a sequence begins, and how many elements it has, which may be empty structures."""
        at, count = self.length(at, node.path)
        if count * (node.size or 1) > len(self.payload) - at:
            raise EpisodeError(
                f"{node.path} announces {count} elements, {len(self.payload) - at} bytes are left",
                reason="bad-message",
            )
        return at, count

    def length(self, at: int, path: str) -> tuple[int, int]:
        """Where what follows a length begins, and the length."""
        if self.aligned:
            at += -at % 4
        if at + 4 > len(self.payload):
            raise EpisodeError(
                f"{len(self.payload)} bytes, it ends before {path}", reason="bad-message"
            )
        (size,) = unpack_from(self.length_format, self.payload, at)
        self.guards += (at, at + 1, at + 2, at + 3)
        return at + 4, size

    def put(self, node: Node, place: tuple[int, int] | None, shape: tuple[int, ...]) -> None:
        leaf = self.leaves.get(node.path)
        if leaf is None:
            leaf = Leaf(node.kind, node.dtype, node.size, shape, [])
            self.leaves[node.path] = leaf
        elif leaf.shape != shape:
            leaf.shape = None
        if place is None:
            return
        leaf.places.append(place)
        self.places += 1
        if place[0] + place[1] > len(self.payload):
            raise EpisodeError(
                f"{len(self.payload)} bytes, {node.path} ends at {place[0] + place[1]}",
                reason="bad-message",
            )
        if self.places > _MOST_PLACES:
            raise EpisodeError(
                f"more than {_MOST_PLACES} structures and texts in a message, at {node.path}",
                reason="too-many-values",
            )

    def nothing(self, nodes: tuple[Node, ...], dims: tuple[int, ...]) -> None:
        """Fields inside a sequence of no element."""
        for node in nodes:
            inner = dims if node.count is None else (*dims, max(node.count, 0))
            if node.kind == "struct":
                self.nothing(node.fields, inner)
            else:
                self.put(node, None, inner)
