"""What decodes the messages of a channel: chosen once, by its encodings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ingest.errors import EpisodeError
from ingest.messages.columns import Block
from ingest.messages.json_fields import json_dtypes, json_fields
from ingest.messages.log import Channel
from ingest.messages.protobuf_fields import protobuf_fields
from ingest.messages.ros_columns import RosColumns, fields_of
from ingest.messages.ros_layout import Layout, find_layout
from ingest.messages.ros_types import Encoding, Node, ros_nodes
from ingest.messages.row_columns import RowColumns


class Gathered(Protocol):
    """Takes the payloads of a channel and gives their values by path."""

    def add(self, payload: bytes) -> None:
        """Take the next message."""

    def join(self) -> Block:
        """All values."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Of one channel.

    Attributes:
        fields: values of one message by path, stamps in nanoseconds; raises EpisodeError for what
            it cannot read.
        gather: a new `Gathered` of many.
        note: what a user should know of it, "" for nothing.
    """

    fields: Callable[[bytes], Mapping[str, Any]]
    gather: Callable[[], Gathered]
    note: str = ""


def decoder_of(channel: Channel) -> Decoder:
    """What decodes a channel.

    Raises:
        EpisodeError: an encoding that is not known, or a definition that is missing or damaged.
        MissingReaderError: the package that decodes it is not installed.
    """
    encoding = channel.message_encoding
    if encoding == "json":
        dtypes = json_dtypes(channel.schema)
        return Decoder(
            fields=json_fields, gather=lambda: RowColumns(fields=json_fields, dtypes=dtypes)
        )
    if encoding == "protobuf" and channel.schema_encoding == "protobuf":
        fields, declared = protobuf_fields(channel)
        return Decoder(fields=fields, gather=lambda: RowColumns(fields=fields, dtypes=declared))
    if encoding in {"cdr", "ros1"}:
        if not channel.schema_name:
            raise EpisodeError(
                f"messages in {encoding} without a type", reason="channel-without-schema"
            )
        return _ros_decoder(channel, "ros1" if encoding == "ros1" else "cdr")
    raise EpisodeError(
        f"messages in {encoding or 'no encoding'}"
        f" ({channel.schema_encoding or 'no'} definition) are not read",
        reason="unknown-encoding",
    )


def _ros_decoder(channel: Channel, encoding: Encoding) -> Decoder:
    nodes = ros_nodes(channel)
    note = ""
    if not channel.schema.strip() and channel.schema_encoding != "ros2msg":
        newest = "ROS 1 Noetic" if encoding == "ros1" else "the newest ROS 2"
        note = f"carries no definition of {channel.schema_name}; that of {newest} is taken"
    return Decoder(
        fields=_RosFields(nodes=nodes, encoding=encoding),
        gather=lambda: RosColumns(nodes=nodes, encoding=encoding),
        note=note,
    )


@dataclass(kw_only=True)
class _RosFields:
    """Decodes one message after the other; the last layout mostly holds for the next."""

    nodes: tuple[Node, ...]
    encoding: Encoding
    _layout: Layout | None = field(default=None)
    _size: int = -1

    def __call__(self, payload: bytes) -> Mapping[str, Any]:
        layout = self._layout
        if layout is None or len(payload) != self._size or not layout.fits_one(payload):
            layout = find_layout(payload, self.nodes, self.encoding)
            self._layout, self._size = layout, len(payload)
        return fields_of(payload, layout)
