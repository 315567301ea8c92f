"""Records of MCAP as bytes. Source: mcap.dev/spec (version 0)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error
from typing import Final

from ingest.messages.log import Channel

MAGIC: Final = b"\x89MCAP0\r\n"
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, STATISTICS, DATA_END = 2, 3, 4, 5, 6, 11, 15
PREFIX: Final = Struct("<BQ")
MESSAGE_HEAD: Final = Struct("<HIQQ")
CHUNK_HEAD: Final = Struct("<QQQI")
FOOTER_BODY: Final = Struct("<QQI")
_U16, _U32, _U64 = Struct("<H"), Struct("<I"), Struct("<Q")


class RecordError(ValueError):
    """A record that its length does not hold."""


def text_at(data: memoryview, at: int) -> tuple[str, int]:
    """A text with its length before it, and where it ends."""
    (size,) = _U32.unpack_from(data, at)
    end = at + 4 + size
    if end > len(data):
        raise RecordError(f"a text of {size} bytes in a record of {len(data)}")
    return bytes(data[at + 4 : end]).decode("utf-8", "backslashreplace"), end


@dataclass(kw_only=True)
class Definitions:
    """Schemas and channels that were met, by id."""

    schemas: dict[int, tuple[str, str, bytes]] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)

    def add(self, kind: int, body: memoryview) -> None:
        """Take a schema or channel; one that was met stays the same object.

        Raises:
            RecordError: cut short.
        """
        try:
            if kind == SCHEMA:
                self._add_schema(body)
            else:
                self._add_channel(body)
        except struct_error as error:
            raise RecordError(f"a definition of {len(body)} bytes ({error})") from error

    def _add_schema(self, body: memoryview) -> None:
        (number,) = _U16.unpack_from(body, 0)
        name, at = text_at(body, 2)
        encoding, at = text_at(body, at)
        (size,) = _U32.unpack_from(body, at)
        if at + 4 + size > len(body):
            raise RecordError(f"a schema of {size} bytes in a record of {len(body)}")
        self.schemas[number] = (name, encoding, bytes(body[at + 4 : at + 4 + size]))

    def _add_channel(self, body: memoryview) -> None:
        (number,) = _U16.unpack_from(body, 0)
        (schema_id,) = _U16.unpack_from(body, 2)
        topic, at = text_at(body, 4)
        encoding, at = text_at(body, at)
        name, schema_encoding, schema = self.schemas.get(schema_id, ("", "", b""))
        channel = Channel(
            id=number,
            topic=topic,
            schema_name=name,
            schema_encoding=schema_encoding,
            schema=schema,
            message_encoding=encoding,
            metadata=_texts(body, at),
        )
        if self.channels.get(number) != channel:
            self.channels[number] = channel


def _texts(body: memoryview, at: int) -> Mapping[str, str]:
    (size,) = _U32.unpack_from(body, at)
    at, end = at + 4, at + 4 + size
    found: dict[str, str] = {}
    while at < end:
        key, at = text_at(body, at)
        found[key], at = text_at(body, at)
    return found


def counts_of(body: memoryview) -> tuple[int, dict[int, int]]:
    """Of a Statistics record: messages in all, and by channel.

    Raises:
        RecordError: cut short.
    """
    try:
        (total,) = _U64.unpack_from(body, 0)
        (size,) = _U32.unpack_from(body, 42)
        places = range(46, 46 + size, 10)
        return total, {
            _U16.unpack_from(body, at)[0]: _U64.unpack_from(body, at + 2)[0] for at in places
        }
    except struct_error as error:
        raise RecordError(f"statistics of {len(body)} bytes ({error})") from error


def records_in(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """Kind, begin and end of each whole record; ends silently before one that is cut short."""
    at, size = 0, len(data)
    unpack = PREFIX.unpack_from
    while at + 9 <= size:
        kind, length = unpack(data, at)
        end = at + 9 + length
        if end > size:
            return
        yield kind, at + 9, end
        at = end
