"""Protobuf messages as path -> value, by the FileDescriptorSet that a recording carries.

Source: protobuf.dev/programming-guides/proto3 (presence, well-known types).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ingest.errors import EpisodeError, MissingReaderError
from ingest.messages.log import Channel

_NS: Final = 1_000_000_000
_TIMES: Final = {
    "google.protobuf.Timestamp": (np.datetime64, "M8[ns]"),
    "google.protobuf.Duration": (np.timedelta64, "m8[ns]"),
}
_MOST_DEPTH: Final = 24
_MOST_PATHS: Final = 10_000
# Of a field's C++ type, as descriptors number it.
_DTYPES: Final = {
    **dict.fromkeys((1, 8), "int32"),
    2: "int64",
    3: "uint32",
    4: "uint64",
    5: "float64",
    6: "float32",
    7: "bool",
}
_MESSAGE: Final = 10


def protobuf_fields(
    channel: Channel,
) -> tuple[Callable[[bytes], Mapping[str, Any]], Mapping[str, str]]:
    """What decodes a message of the channel, and the declared types of its paths.

    Fields that a message does not have are not in its mapping, except numbers and texts without
    presence, which have their default. Maps are left out.

    Raises:
        EpisodeError: a definition that cannot be read, or lacks the type.
        MissingReaderError: protobuf is not installed.
    """
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415  an extra
        from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415
    except ImportError as error:
        raise MissingReaderError(
            "Protobuf messages need the package protobuf: pip install 'headrace[ros]'"
        ) from error
    pool = DescriptorPool()
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(channel.schema).file}
        _add(pool, files)
        descriptor = pool.FindMessageTypeByName(channel.schema_name)
        kind = GetMessageClass(descriptor)
    except (DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:120]
        raise EpisodeError(
            f"the definition of {channel.schema_name} cannot be read ({why})", reason="bad-schema"
        ) from error
    dtypes: dict[str, str] = {}
    _declare(descriptor, "", dtypes, 0)

    def fields(payload: bytes) -> Mapping[str, Any]:
        try:
            message = kind.FromString(payload)
        except DecodeError as error:
            raise EpisodeError(
                f"no {channel.schema_name} ({error})", reason="bad-message"
            ) from error
        found: dict[str, Any] = {}
        _flatten(message, "", found, 0)
        return found

    return fields, dtypes


def _add(pool: Any, files: Mapping[str, Any]) -> None:  # noqa: ANN401  protobuf is untyped
    """Add files, each behind those it imports."""
    added: set[str] = set()

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in added or name in above or name not in files:
            return
        for imported in files[name].dependency:
            add(imported, (*above, name))
        added.add(name)
        pool.Add(files[name])

    for name in files:
        add(name, ())


def _declare(descriptor: Any, path: str, dtypes: dict[str, str], depth: int) -> None:  # noqa: ANN401
    if depth > _MOST_DEPTH or len(dtypes) > _MOST_PATHS:
        return
    for field in descriptor.fields:
        name = f"{path}.{field.name}" if path else field.name
        if field.cpp_type == _MESSAGE:
            if field.message_type.full_name in _TIMES:
                dtypes[name] = _TIMES[field.message_type.full_name][1]
            elif not field.message_type.GetOptions().map_entry:
                inside = f"{name}[]" if field.is_repeated else name
                _declare(field.message_type, inside, dtypes, depth + 1)
        elif dtype := _DTYPES.get(field.cpp_type):
            dtypes[name] = dtype


def _flatten(message: Any, path: str, found: dict[str, Any], depth: int) -> None:  # noqa: ANN401
    if depth > _MOST_DEPTH:
        raise EpisodeError(f"{path} is nested too deep", reason="bad-message")
    for field in message.DESCRIPTOR.fields:
        name = f"{path}.{field.name}" if path else field.name
        if field.is_repeated:
            _put_list(getattr(message, field.name), field, name, found, depth)
        elif field.has_presence and not message.HasField(field.name):
            continue
        elif field.cpp_type != _MESSAGE:
            found[name] = getattr(message, field.name)
        elif field.message_type.full_name in _TIMES:
            found[name] = _time(getattr(message, field.name))
        else:
            _flatten(getattr(message, field.name), name, found, depth + 1)


def _put_list(
    values: Any,  # noqa: ANN401
    field: Any,  # noqa: ANN401
    name: str,
    found: dict[str, Any],
    depth: int,
) -> None:
    if field.cpp_type != _MESSAGE:
        found[name] = list(values)
    elif field.message_type.full_name in _TIMES:
        found[name] = [_time(value) for value in values]
    elif not field.message_type.GetOptions().map_entry:
        rows: list[dict[str, Any]] = []
        for value in values:
            rows.append({})
            _flatten(value, f"{name}[]", rows[-1], depth + 1)
        for inner in dict.fromkeys(path for row in rows for path in row):
            found[inner] = [row.get(inner) for row in rows]


def _time(value: Any) -> np.datetime64 | np.timedelta64:  # noqa: ANN401
    kind, _ = _TIMES[value.DESCRIPTOR.full_name]
    stamp = value.seconds * _NS + value.nanos
    if abs(stamp) >= 1 << 63:
        raise EpisodeError(f"a time of {value.seconds} seconds", reason="bad-message")
    found: np.datetime64 | np.timedelta64 = kind(stamp, "ns")
    return found
