"""What a recorder wrote, kept as it was: messages of a stream, with every clock they carry.

A lake keeps them in chunks of a few MiB, a row of the table `raw` each. Where a message holds a
picture that is a packet of the episode's video, the chunk has the message without the packet and
says which frame goes where, so nothing is stored twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from lake.errors import SpecError
from lake.tables import CLOCKS

MAX_CHUNK_BYTES: Final = 8 << 20
"""Payload bytes of a chunk of more than one message; a single message may be larger."""


@dataclass(frozen=True, kw_only=True)
class RawStream:
    """A stream of messages as its recorder declared it.

    Attributes:
        name: topic, dataset path or stream name in the source.
        schema_name: name of the message type (`sensor_msgs/msg/JointState`), "" for none.
        schema_encoding: what `schema` is written in (`ros2msg`, `ros1msg`, `protobuf`, ...).
        schema: the message definition as recorded.
        message_encoding: of the payloads (`cdr`, `ros1`, `protobuf`, `json`, ...).
        metadata: what else the recorder says of the stream.
    """

    name: str
    schema_name: str = ""
    schema_encoding: str = ""
    schema: bytes = b""
    message_encoding: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class RawMessage(NamedTuple):
    """A message, or what is left of it where its picture is a frame of the episode's video.

    Attributes:
        stream: what it belongs to.
        clocks: clock (of `lake.tables.CLOCKS`) -> ns, those that the message was stamped by.
        payload: its bytes; without those of the packet where `frame` names one.
        sequence: the recorder's number, None where there is none.
        camera: camera of the episode that `frame` is of.
        frame: display ordinal of the frame whose packet belongs into the message, -1 for none.
        frame_at: byte of `payload` before which the packet goes.
    """

    stream: RawStream
    clocks: Mapping[str, int]
    payload: bytes | memoryview
    sequence: int | None = None
    camera: str | None = None
    frame: int = -1
    frame_at: int = 0


@dataclass(frozen=True, kw_only=True)
class RawChunk:
    """N messages of one stream, in the order in which they were recorded.

    Attributes:
        stream: what they belong to.
        clocks: clock (of `lake.tables.CLOCKS`) -> int64 [N] ns; a clock the stream lacks is absent.
        sizes: int32 [N], bytes of each message in `payload`.
        payload: the messages, one after the other; without the packets that `frames` names.
        sequence: int64 [N], the recorder's numbers, or None.
        camera: camera of the episode that `frames` are of, or None.
        frames: int32 [N], display ordinal of the frame whose packet belongs into the message, -1
            for none; None where no message has one.
        frame_at: int32 [N], byte of the message before which the packet goes.
    """

    stream: RawStream
    clocks: Mapping[str, NDArray[np.int64]]
    sizes: NDArray[np.int32]
    payload: bytes | memoryview
    sequence: NDArray[np.int64] | None = None
    camera: str | None = None
    frames: NDArray[np.int32] | None = None
    frame_at: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        where = f"raw stream {self.stream.name}"
        count = len(self.sizes)
        if count == 0 or not self.clocks or not set(self.clocks) <= set(CLOCKS):
            raise SpecError(
                f"{where}: a chunk has messages and clocks among {', '.join(CLOCKS)}; this has"
                f" {count} and {', '.join(self.clocks) or 'none'}"
            )
        arrays: list[tuple[str, NDArray[Any] | None, str]] = [
            *((f"clock {name}", stamps, "int64") for name, stamps in self.clocks.items()),
            ("sizes", self.sizes, "int32"),
            ("sequence", self.sequence, "int64"),
            ("frames", self.frames, "int32"),
            ("frame_at", self.frame_at, "int32"),
        ]
        for name, array, dtype in arrays:
            if array is not None and (array.shape != (count,) or array.dtype != dtype):
                raise SpecError(f"{where}: {name} is {array.dtype} {array.shape}, not [{count}]")
        if (self.sizes < 0).any() or int(self.sizes.sum(dtype=np.int64)) != len(self.payload):
            raise SpecError(f"{where}: the sizes do not add up to {len(self.payload)} bytes")
        if count > 1 and len(self.payload) > MAX_CHUNK_BYTES:
            raise SpecError(
                f"{where}: a chunk of {count} messages has {len(self.payload)} bytes; the most is"
                f" {MAX_CHUNK_BYTES}"
            )
        refers = (self.camera is not None, self.frames is not None, self.frame_at is not None)
        if len(set(refers)) != 1:
            raise SpecError(f"{where}: camera, frames and frame_at come together")
        if self.frame_at is not None and (
            (self.frame_at < 0).any() or (self.frame_at > self.sizes).any()
        ):
            raise SpecError(f"{where}: a packet goes outside of its message")

    @property
    def num_messages(self) -> int:
        """Number of messages, N."""
        return len(self.sizes)

    def checksum(self) -> int:
        """XXH3-64 of all that the chunk holds."""
        stream = self.stream
        header = {
            "stream": [stream.name, stream.schema_name, stream.schema_encoding],
            "message_encoding": stream.message_encoding,
            "metadata": dict(stream.metadata),
            "clocks": [clock for clock in CLOCKS if clock in self.clocks],
            "camera": self.camera,
            "sequence": self.sequence is not None,
        }
        digest = xxhash.xxh3_64(json.dumps(header, sort_keys=True).encode())
        digest.update(stream.schema)
        stamps = [self.clocks[clock] for clock in CLOCKS if clock in self.clocks]
        arrays: tuple[NDArray[Any] | None, ...] = (*stamps, self.sequence, self.sizes)
        for array in (*arrays, self.frames, self.frame_at):
            if array is not None:
                digest.update(array.tobytes())
        digest.update(self.payload)
        return digest.intdigest()
