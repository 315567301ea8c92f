"""Logs of messages in memory; payloads are written by rosbags, protobuf and json."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from ingest.messages.log import Channel, Message
from ingest.messages.source import LogSource
from ingest.pipeline import read_episode
from ingest.source import EpisodeReading, Finding, SourceOptions

NS = 1_000_000_000
START = 1_700_000_000 * NS
STEP = NS // 10


@cache
def store(ros: int = 2) -> Typestore:
    """The standard types of ROS 1 or ROS 2."""
    return get_typestore(Stores.ROS1_NOETIC if ros == 1 else Stores.ROS2_HUMBLE)


def with_types(name: str, definition: str, ros: int = 2) -> Typestore:
    """The standard types and one of the test's own."""
    types = get_typestore(Stores.ROS1_NOETIC if ros == 1 else Stores.ROS2_HUMBLE)
    types.register(get_types_from_msg(definition, name))
    return types


def build(types: Typestore, name: str, values: Mapping[str, Any]) -> Any:
    """A message of nested mappings; what is missing is 0, "" or empty."""
    made = {}
    for member, kind in types.fielddefs[name][1]:
        made[member] = _value(types, kind, values.get(member))
    return types.types[name](**made)


def _value(types: Typestore, kind: Any, value: Any) -> Any:
    node, detail = kind
    if node == Nodetype.NAME:
        return build(types, detail, value or {})
    if node == Nodetype.BASE:
        if detail[0] == "string":
            return value or ""
        return value if value is not None else 0
    (inner, what), size = detail
    count = size if node == Nodetype.ARRAY else 0
    if inner == Nodetype.NAME:
        return [build(types, what, v) for v in (value or [{}] * count)]
    if what[0] == "string":
        return list(value) if value is not None else [""] * count
    dtype = {"byte": "uint8", "char": "uint8"}.get(what[0], what[0])
    return np.asarray(value if value is not None else np.zeros(count), dtype)


def payload(
    name: str,
    values: Mapping[str, Any],
    *,
    types: Typestore | None = None,
    encoding: str = "cdr",
    little_endian: bool = True,
) -> bytes:
    """A message in CDR or as ROS 1 writes it."""
    types = types or store(1 if encoding == "ros1" else 2)
    message = build(types, name, values)
    if encoding == "ros1":
        return bytes(types.serialize_ros1(message, name))
    return bytes(types.serialize_cdr(message, name, little_endian=little_endian))


def definition_of(name: str, *, types: Typestore | None = None, ros: int = 2) -> bytes:
    """The definition of a type with those that it needs, as recorders write it."""
    text, _ = (types or store(ros)).generate_msgdef(name, ros_version=ros)
    return text.encode()


def header(step: int, frame: str = "base", delay_ns: int = 0) -> dict[str, Any]:
    """A stamp every 100 ms."""
    at = START + step * STEP - delay_ns
    return {"stamp": {"sec": at // NS, "nanosec": at % NS}, "frame_id": frame}


_IDS = iter(range(1, 1 << 30))


def ros2_channel(topic: str, name: str, **changes: Any) -> Channel:
    """A channel of a standard type, with its definition."""
    return Channel(
        **{
            "id": next(_IDS),
            "topic": topic,
            "schema_name": name,
            "schema_encoding": "ros2msg",
            "schema": changes.pop("schema", None) or definition_of(name),
            "message_encoding": "cdr",
            "metadata": {},
            **changes,
        }
    )


def json_channel(topic: str, name: str = "", schema: Mapping[str, Any] | None = None) -> Channel:
    """A channel of JSON, with a schema or without."""
    return Channel(
        id=next(_IDS),
        topic=topic,
        schema_name=name,
        schema_encoding="jsonschema" if schema is not None else "",
        schema=json.dumps(schema).encode() if schema is not None else b"",
        message_encoding="json",
        metadata={},
    )


Fields = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "double": Fields.TYPE_DOUBLE,
    "float": Fields.TYPE_FLOAT,
    "int32": Fields.TYPE_INT32,
    "int64": Fields.TYPE_INT64,
    "bool": Fields.TYPE_BOOL,
    "string": Fields.TYPE_STRING,
    "bytes": Fields.TYPE_BYTES,
}


def protobuf_channel(
    topic: str, name: str, messages: Mapping[str, Mapping[str, str]]
) -> tuple[Channel, Any]:
    """A channel of Protobuf, and the class of its messages.

    Args:
        topic: of it.
        name: of the message type, `package.Type`.
        messages: type (without package) -> field -> kind: of `_KINDS`, `time`, or another type;
            `repeated ` before it for lists.
    """
    package = name.rpartition(".")[0]
    stamp = descriptor_pb2.FileDescriptorProto(
        name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3"
    )
    time = stamp.message_type.add(name="Timestamp")
    time.field.add(name="seconds", number=1, type=Fields.TYPE_INT64, label=1)
    time.field.add(name="nanos", number=2, type=Fields.TYPE_INT32, label=1)
    own = descriptor_pb2.FileDescriptorProto(
        name="own.proto", package=package, syntax="proto3", dependency=[stamp.name]
    )
    for kind, fields in messages.items():
        made = own.message_type.add(name=kind)
        for number, (member, given) in enumerate(fields.items(), 1):
            label = 3 if given.startswith("repeated ") else 1
            what = given.removeprefix("repeated ")
            if what in _KINDS:
                made.field.add(name=member, number=number, type=_KINDS[what], label=label)
                continue
            typed = ".google.protobuf.Timestamp" if what == "time" else f".{package}.{what}"
            made.field.add(
                name=member, number=number, type=Fields.TYPE_MESSAGE, label=label, type_name=typed
            )
    files = descriptor_pb2.FileDescriptorSet(file=[own, stamp])  # imports behind, as some writers
    pool = DescriptorPool()
    pool.Add(stamp)
    pool.Add(own)
    channel = Channel(
        id=next(_IDS),
        topic=topic,
        schema_name=name,
        schema_encoding="protobuf",
        schema=files.SerializeToString(),
        message_encoding="protobuf",
        metadata={},
    )
    return channel, GetMessageClass(pool.FindMessageTypeByName(name))


@dataclass(kw_only=True)
class MemoryLog:
    """A log of given messages; counts how often it is read."""

    rows: Sequence[Message]
    files: tuple[Path, ...] = ()
    format: str = "memory"
    readings: int = 0
    notes: list[Finding] = field(default_factory=list)

    def channels(self) -> Sequence[Channel]:
        return list({row.channel.id: row.channel for row in self.rows}.values())

    def messages(self) -> Iterator[Message]:
        self.readings += 1
        yield from self.rows

    def findings(self) -> Sequence[Finding]:
        return self.notes

    def close(self) -> None:
        """Nothing is open."""


def at_steps(channel: Channel, payloads: Sequence[bytes], *, every: int = STEP) -> list[Message]:
    """A message every 100 ms, published 1 ms before it was logged."""
    return [
        Message(channel, START + n * every, START + n * every - 1_000_000, n, data)
        for n, data in enumerate(payloads)
    ]


def source_of(
    tmp_path: Path, *streams: Sequence[Message], **options: Any
) -> tuple[LogSource, MemoryLog]:
    """A source of messages in the order of their log times."""
    path = tmp_path / "teleop.log"
    path.write_bytes(b"")
    rows = sorted((row for stream in streams for row in stream), key=lambda row: row.log_time_ns)
    log = MemoryLog(rows=rows, files=(path,))
    return LogSource(path, log, SourceOptions(**options)), log


def read(tmp_path: Path, *streams: Sequence[Message], **options: Any) -> EpisodeReading:
    """The only episode."""
    source, _ = source_of(tmp_path, *streams, **options)
    (entry,) = source.entries()
    return read_episode(source, entry)


def told(reading: EpisodeReading, severity: str = "error") -> list[tuple[str, str]]:
    """Stream and reason of its findings."""
    return [(f.stream, f.reason) for f in reading.findings if f.severity == severity]


def h264(pictures: NDArray[np.uint8], *, codec: str = "libx264", gop: int = 3) -> list[bytes]:
    """A packet for each picture, headers before key frames, which come every `gop`."""
    encoder = av.CodecContext.create(codec, "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.height, encoder.width = pictures.shape[1:3]
    encoder.pix_fmt = "yuv420p"
    encoder.options = {
        "libx264": {"g": str(gop), "bf": "0", "sc_threshold": "0", "tune": "zerolatency"},
        "libx265": {
            "tune": "zerolatency",
            "x265-params": f"keyint={gop}:min-keyint={gop}:bframes=0:scenecut=0:repeat-headers=1:"
            "log-level=none",
        },
    }[codec]
    packets = []
    for picture in pictures:
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        packets += encoder.encode(frame.reformat(format="yuv420p"))
    return [bytes(packet) for packet in packets + encoder.encode(None)]
