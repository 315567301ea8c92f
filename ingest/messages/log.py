"""One interface of all logs of messages: MCAP, ROS 1 bags, ROS 2 bags."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from ingest.source import Finding


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Where messages of one type come from.

    Attributes:
        id: of the channel, unique in its log.
        topic: name.
        schema_name: of the type, such as `sensor_msgs/msg/Image`; "" where there is none.
        schema_encoding: `ros2msg`, `ros2idl`, `ros1msg`, `protobuf`, `jsonschema` or "".
        schema: the definition.
        message_encoding: `cdr`, `ros1`, `protobuf`, `json` or another.
        metadata: what else the log says of it.
    """

    id: int
    topic: str
    schema_name: str
    schema_encoding: str
    schema: bytes
    message_encoding: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class Message(NamedTuple):
    """One message; its payload is not compressed."""

    channel: Channel
    log_time_ns: int
    publish_time_ns: int
    sequence: int
    payload: bytes


class MessageLog(Protocol):
    """A log, opened."""

    @property
    def format(self) -> str:
        """Name of the format."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is made of."""

    def channels(self) -> Sequence[Channel]:
        """All channels, as far as known before reading."""

    def messages(self) -> Iterator[Message]:
        """All messages in the order of the files, in bounded memory; each call begins anew."""

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the log, as far as known: after reading, what was lost."""

    def close(self) -> None:
        """Release files."""
