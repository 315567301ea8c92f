"""Definitions of ROS messages, parsed by rosbags, as trees along which payloads are walked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Literal

from ingest.errors import EpisodeError, MissingReaderError
from ingest.messages.log import Channel

_SIZES: Final = {
    **dict.fromkeys(("bool", "i1", "u1"), 1),
    **dict.fromkeys(("i2", "u2"), 2),
    **dict.fromkeys(("i4", "u4", "f4"), 4),
    **dict.fromkeys(("i8", "u8", "f8", "time", "duration", "utime"), 8),
}
_DTYPES: Final = {
    "bool": "bool",
    "char": "u1",
    "float32": "f4",
    "float64": "f8",
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
}
_TIMES: Final = {
    "builtin_interfaces/msg/Time": "time",
    "builtin_interfaces/msg/Duration": "duration",
}
FILLER: Final = "structure_needs_at_least_one_member"
"""The byte of an empty structure in ROS 2."""
_MOST_DEPTH: Final = 24
_MOST_NODES: Final = 10_000
_MOST_SCHEMA_BYTES: Final = 4 << 20

Encoding = Literal["cdr", "ros1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A field, at any depth.

    Attributes:
        path: from the message to it, such as `pose.position.x`, with `[]` behind a list of
            structures.
        kind: `numbers`, `text` or `struct`.
        dtype: of numbers: numpy's without byte order; or `time` (signed seconds), `utime`
            (unsigned), `duration`, each of two 32-bit integers: seconds, nanoseconds.
        size: bytes of an element of numbers.
        align: of numbers, in CDR.
        count: elements of an array; None for a single value, -1 for a sequence, whose length is in
            the payload.
        fields: of a structure.
    """

    path: str
    kind: Literal["numbers", "text", "struct"]
    dtype: str = ""
    size: int = 0
    align: int = 1
    count: int | None = None
    fields: "tuple[Node, ...]" = ()


def ros_nodes(channel: Channel) -> tuple[Node, ...]:
    """The fields of a channel's messages.

    Without a definition that of the newest ROS (or of ROS 1 Noetic) is taken, where the type is one
    of its own.

    Raises:
        EpisodeError: a definition that cannot be parsed, or none, or a type that is not known.
        MissingReaderError: rosbags is not installed.
    """
    encoding: Encoding = "ros1" if channel.message_encoding == "ros1" else "cdr"
    return _nodes(channel.schema_name, channel.schema_encoding, channel.schema, encoding)


@lru_cache(maxsize=512)
def _nodes(name: str, schema_encoding: str, schema: bytes, encoding: Encoding) -> tuple[Node, ...]:
    builder = _Builder(own=_parsed(name, schema_encoding, schema), encoding=encoding)
    root = _normal(name)
    if root not in builder.own and builder.own and schema_encoding == "ros2msg":
        root = next(iter(builder.own))
    return builder.fields(root, "", 0)


def _parsed(name: str, schema_encoding: str, schema: bytes) -> Mapping[str, Any]:
    try:
        from rosbags.typesys import (  # noqa: PLC0415  an extra
            TypesysError,
            get_types_from_idl,
            get_types_from_msg,
        )
    except ImportError as error:
        raise MissingReaderError(
            "ROS messages need the package rosbags: pip install 'headrace[ros]'"
        ) from error
    if len(schema) > _MOST_SCHEMA_BYTES:
        raise EpisodeError(f"{name}: a definition of {len(schema)} bytes", reason="bad-schema")
    text = schema.decode("utf-8", "replace").replace("\r\n", "\n")
    try:
        if schema_encoding in {"ros2idl", "omgidl"}:
            found: dict[str, Any] = {}
            for part in re.split(r"^=+$", text, flags=re.MULTILINE):
                idl = re.sub(r"^\s*(#|IDL:).*$", "", part, flags=re.MULTILINE)
                if idl.strip():
                    found.update(get_types_from_idl(idl))
            return found
        if not text.strip() and not schema_encoding:
            return {}
        return get_types_from_msg(text, name)
    except (TypesysError, RecursionError, AssertionError, ValueError, LookupError) as error:
        why = " ".join(str(error).split())[:120]
        raise EpisodeError(
            f"the definition of {name} cannot be parsed ({why})", reason="bad-schema"
        ) from error


@cache
def _store(encoding: Encoding) -> Mapping[str, Any]:
    from rosbags.typesys import Stores, get_typestore  # noqa: PLC0415  an extra

    return get_typestore(Stores.ROS1_NOETIC if encoding == "ros1" else Stores.LATEST).fielddefs


def _normal(name: str) -> str:
    """`sensor_msgs/Image` as `sensor_msgs/msg/Image`."""
    package, _, rest = name.partition("/")
    return name if "/" in rest or not rest else f"{package}/msg/{rest}"


@dataclass(kw_only=True)
class _Builder:
    """Resolves names; the tree of a type is bounded in depth and size."""

    own: Mapping[str, Any]
    encoding: Encoding
    nodes: int = 0

    def fields(self, name: str, path: str, depth: int) -> tuple[Node, ...]:
        definition = self.own.get(name) or _store(self.encoding).get(name)
        if definition is None:
            raise EpisodeError(f"the type {name} is not defined", reason="bad-schema")
        self.nodes += len(definition[1])
        if depth > _MOST_DEPTH or self.nodes > _MOST_NODES:
            raise EpisodeError(f"the type {name} contains itself", reason="bad-schema")
        prefix = f"{path}." if path else ""
        found = [self._node(f"{prefix}{field}", kind, depth) for field, kind in definition[1]]
        if not found and self.encoding == "cdr":  # ROS 2 gives empty structures one byte
            filler = Node(
                path=f"{prefix}{FILLER}",
                kind="numbers",
                dtype="u1",
                size=1,
            )
            found = [filler]
        return tuple(found)

    def _node(self, path: str, described: Any, depth: int) -> Node:  # noqa: ANN401  rosbags' tuples
        kind, detail = described
        count: int | None = None
        if kind.name in {"ARRAY", "SEQUENCE"}:
            (inner, detail), size = detail
            count = size if kind.name == "ARRAY" else -1
            kind = inner
        if kind.name == "NAME":
            return self._named(path, detail, count, depth)
        base = detail[0]
        if base == "string":
            return Node(path=path, kind="text", count=count)
        dtype = _DTYPES.get(base, "")
        if base == "byte":
            dtype = "i1" if self.encoding == "ros1" else "u1"
        if not dtype:
            raise EpisodeError(f"{path}: values of type {base} are not read", reason="bad-schema")
        return _numbers(path, dtype, count)

    def _named(self, path: str, name: str, count: int | None, depth: int) -> Node:
        if dtype := _TIMES.get(name):
            if dtype == "time" and self.encoding == "ros1":
                dtype = "utime"
            return _numbers(path, dtype, count)
        inside = path if count is None else f"{path}[]"
        fields = self.fields(name, inside, depth + 1)
        return Node(path=path, kind="struct", count=count, fields=fields)


def _numbers(path: str, dtype: str, count: int | None) -> Node:
    size = _SIZES[dtype]
    align = 4 if dtype in {"time", "utime", "duration"} else size
    return Node(path=path, kind="numbers", dtype=dtype, size=size, align=align, count=count)
