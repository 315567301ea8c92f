"""Records of ROS 1 bags as bytes. Source: wiki.ros.org/Bags/Format/2.0."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ingest.messages.log import Channel

MAGIC: Final = b"#ROSBAG V2.0\n"
MESSAGE, BAG_HEADER, INDEX, CHUNK, CHUNK_INFO, CONNECTION = 2, 3, 4, 5, 6, 7
LENGTH: Final = Struct("<I")
MOST_HEADER: Final = 16 << 20
_STAMP: Final = Struct("<II")
_NS: Final = 1_000_000_000


class RecordError(ValueError):
    """A record that is none."""


def header_fields(header: bytes | memoryview) -> Mapping[bytes, bytes]:
    """Name -> value of a header.

    Raises:
        RecordError: a field that its length does not hold.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(header):
        if at + 4 > len(header):
            raise RecordError("a header that is cut short")
        (size,) = LENGTH.unpack_from(header, at)
        pair = bytes(header[at + 4 : at + 4 + size])
        name, equals, value = pair.partition(b"=")
        if len(pair) < size or not equals:
            raise RecordError("a header whose fields its lengths do not hold")
        found[name] = value
        at += 4 + size
    return found


def number_of(fields: Mapping[bytes, bytes], name: bytes) -> int:
    """An unsigned number of a header.

    Raises:
        RecordError: it is not there.
    """
    value = fields.get(name)
    if value is None or len(value) not in {1, 4, 8}:
        raise RecordError(f"a header without {name.decode()}")
    return int.from_bytes(value, "little")


def stamp_of(value: bytes | memoryview) -> int:
    """Nanoseconds of seconds and nanoseconds."""
    seconds, rest = _STAMP.unpack(value)
    return int(seconds * _NS + rest)


def connection_of(fields: Mapping[bytes, bytes], data: bytes | memoryview) -> Channel:
    """A connection record as a channel.

    Raises:
        RecordError: it lacks its number or its type.
    """
    number, about = number_of(fields, b"conn"), header_fields(data)
    if b"type" not in about or b"topic" not in fields:
        raise RecordError("a connection without topic or type")

    def text(value: bytes) -> str:
        return value.decode("utf-8", "backslashreplace")

    left_out = (b"topic", b"type", b"message_definition")
    return Channel(
        id=number,
        topic=text(fields[b"topic"]),
        schema_name=text(about[b"type"]),
        schema_encoding="ros1msg",
        schema=about.get(b"message_definition", b""),
        message_encoding="ros1",
        metadata={text(k): text(v) for k, v in about.items() if k not in left_out},
    )


def records_in(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Begin and end of header, begin and end of data of each whole record."""
    at, size, unpack = 0, len(data), LENGTH.unpack_from
    while at + 8 <= size:
        header_end = at + 4 + unpack(data, at)[0]
        if header_end + 4 > size:
            return
        end = header_end + 4 + unpack(data, header_end)[0]
        if end > size:
            return
        yield at + 4, header_end, header_end + 4, end
        at = end


@dataclass(slots=True)
class MessageHeader:
    """Where the values lie in headers of messages, which a recorder writes all alike."""

    size: int = -1
    fixed: tuple[tuple[int, int, bytes], ...] = ()
    conn: int = 0
    time: int = 0

    def read(self, header: bytes) -> tuple[int, int] | None:
        """Connection and nanoseconds of a message's header, None where it is another record's.

        Raises:
            RecordError: a header that is none.
        """
        if len(header) == self.size and all(header[a:b] == part for a, b, part in self.fixed):
            conn = int.from_bytes(header[self.conn : self.conn + 4], "little")
            return conn, stamp_of(header[self.time : self.time + 8])
        fields = header_fields(header)
        if fields.get(b"op") != bytes([MESSAGE]):
            return None
        number, time = fields.get(b"conn", b""), fields.get(b"time", b"")
        if len(number) != 4 or len(time) != 8:
            raise RecordError("a message without connection or time")
        self._learn(header)
        return int.from_bytes(number, "little"), stamp_of(time)

    def _learn(self, header: bytes) -> None:
        at, begin = 0, 0
        fixed: list[tuple[int, int, bytes]] = []
        while at < len(header):
            (size,) = LENGTH.unpack_from(header, at)
            name, _, value = header[at + 4 : at + 4 + size].partition(b"=")
            at += 4 + size
            if name in {b"conn", b"time"}:
                place = at - len(value)
                fixed.append((begin, place, header[begin:place]))
                begin = at
                self.conn, self.time = (place, self.time) if name == b"conn" else (self.conn, place)
        fixed.append((begin, at, header[begin:at]))
        self.size, self.fixed = len(header), tuple(fixed)
