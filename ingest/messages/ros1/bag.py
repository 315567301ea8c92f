"""ROS 1 bags (2.0), read from front to back.

The index is not needed: bags without one, and bags that were cut short, are read like any other, up
to the damage.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ingest.errors import SourceError
from ingest.messages.log import Channel, Message
from ingest.messages.ros1.records import (
    BAG_HEADER,
    CHUNK,
    CHUNK_INFO,
    CONNECTION,
    LENGTH,
    MAGIC,
    MESSAGE,
    MOST_HEADER,
    MessageHeader,
    RecordError,
    connection_of,
    header_fields,
    number_of,
    records_in,
)
from ingest.messages.unpack import MOST_BYTES, unpack
from ingest.source import Finding, printable

_PACKINGS: Final[dict[bytes, Literal["lz4", "bz2"]]] = {b"lz4": "lz4", b"bz2": "bz2"}


def recognises_bag(path: Path) -> bool:
    """True for a file that begins as bags of version 2.0 do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_bag(path: Path) -> "BagLog":
    """Open a file.

    Raises:
        SourceError: it cannot be read, or is no bag.
    """
    return BagLog(path)


class BagLog:
    """One bag."""

    format = "ros1-bag"

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._path = path
        self._channels: dict[int, Channel] = {}
        self._findings: list[Finding] = []
        self._read: Counter[int] = Counter()
        self._declared: Counter[int] = Counter()
        self._header = MessageHeader()
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}", reason="unreadable-file") from error
        self._size = self._file.seek(0, 2)
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            self._file.close()
            raise SourceError(f"{path}: no bag of version 2.0", reason="not-a-bag")

    def channels(self) -> Sequence[Channel]:
        """Those that were met so far."""
        return list(self._channels.values())

    def findings(self) -> Sequence[Finding]:
        """What was lost, as far as it was read."""
        return tuple(self._findings)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def messages(self) -> Iterator[Message]:
        """All messages in the order of the file; memory is bounded by a chunk."""
        self._findings, self._read, self._declared = [], Counter(), Counter()
        at, index_at, infos, chunks = len(MAGIC), 0, 0, 0
        while at < self._size:
            try:
                header, begin, size = self._record(at)
                fields = header_fields(header)
                kind = number_of(fields, b"op")
                if kind == BAG_HEADER:
                    index_at = number_of(fields, b"index_pos")
                    chunks = number_of(fields, b"chunk_count")
            except RecordError as error:
                self._lose("cut-short", f"no record at byte {at} ({error}); {self._kept()}")
                break
            left = self._size - begin
            if kind == CHUNK:
                yield from self._chunk(fields, begin, min(size, left), whole=size <= left)
            if size > left:
                detail = f"a record of {size} bytes at byte {at}, {left} are left"
                self._lose("cut-short", f"{detail}; {self._kept()}")
                break
            if kind in {CONNECTION, MESSAGE}:
                data = memoryview(self._bytes(at, begin + size - at))
                yield from self._records(data, at)
            elif kind == CHUNK_INFO:
                infos += 1
                self._count(self._bytes(begin, size))
            at = begin + size
        if not index_at:
            self._tell("warning", "unindexed", f"the bag was not closed: no index; {self._kept()}")
        elif infos == chunks:
            self._compare_counts()
        elif not self._findings:
            detail = f"its index lists {infos} of {chunks} chunks, behind it the file is missing"
            self._lose("cut-short", f"{detail}; {self._kept()}")

    def _record(self, at: int) -> tuple[bytes, int, int]:
        """Header of the record at `at`, and where its data begins and how long it says to be."""
        if at + 4 > self._size:
            raise RecordError("cut short")
        (size,) = LENGTH.unpack(self._bytes(at, 4))
        if size > MOST_HEADER or at + 8 + size > self._size:
            raise RecordError(f"a header of {size} bytes")
        header = self._bytes(at + 4, size)
        (data_size,) = LENGTH.unpack(self._bytes(at + 4 + size, 4))
        return header, at + 8 + size, data_size

    def _chunk(
        self, fields: Mapping[bytes, bytes], at: int, size: int, *, whole: bool
    ) -> Iterator[Message]:
        packing = fields.get(b"compression", b"none")
        data: bytes | memoryview = b""
        fault = ""
        if size > MOST_BYTES:
            fault = f"{size} bytes"
        elif packing == b"none":
            data = self._bytes(at, size)
        elif packing in _PACKINGS:
            declared = int.from_bytes(fields.get(b"size", b""), "little")
            data, fault = unpack(_PACKINGS[packing], self._bytes(at, size), declared)
        else:
            fault = f"compressed by {packing!r}, which is not known"
        before = self._read.total()
        yield from self._records(memoryview(data), at)
        if fault and whole:
            kept = self._read.total() - before
            self._lose("damaged-chunk", f"the chunk at byte {at}: {fault}; {kept} messages kept")

    def _records(self, data: memoryview, at: int) -> Iterator[Message]:
        channels, read, counts = self._channels, self._header.read, self._read
        unknown: Counter[int] = Counter()
        end = 0
        for head, head_end, begin, end in records_in(data):
            try:
                found = read(bytes(data[head:head_end]))
                if found is None:
                    self._define(data[head:head_end], data[begin:end])
                    continue
            except RecordError as error:
                self._lose("bad-record", f"behind byte {at}: {error}")
                continue
            channel = channels.get(found[0])
            if channel is None:
                unknown[found[0]] += 1
                continue
            counts[found[0]] += 1
            number = counts[found[0]] - 1
            yield Message(channel, found[1], found[1], number, bytes(data[begin:end]))
        for number, count in unknown.items():
            self._lose("unknown-channel", f"{count} messages of connection {number}, not defined")

    def _define(self, header: memoryview, data: memoryview) -> None:
        fields = header_fields(header)
        if fields.get(b"op") == bytes([CONNECTION]):
            channel = connection_of(fields, data)
            if self._channels.get(channel.id) != channel:
                self._channels[channel.id] = channel

    def _count(self, data: bytes) -> None:
        """Messages by connection, of a chunk as the index has it."""
        for at in range(0, len(data) - 7, 8):
            number, count = LENGTH.unpack_from(data, at)[0], LENGTH.unpack_from(data, at + 4)[0]
            self._declared[number] += count

    def _compare_counts(self) -> None:
        for number, count in self._declared.items():
            if count != self._read[number]:
                topic = self._channels[number].topic if number in self._channels else number
                said = f"{topic}: {self._read[number]} messages, the index says {count}"
                self._lose("wrong-count", said)

    def _kept(self) -> str:
        return f"{self._read.total()} messages are read"

    def _bytes(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        found = self._file.read(size)
        if len(found) < size:
            raise SourceError(f"{self._path}: became shorter while it was read", reason="changed")
        return found

    def _lose(self, reason: str, detail: str) -> None:
        self._tell("error", reason, detail)

    def _tell(self, severity: Literal["error", "warning"], reason: str, detail: str) -> None:
        self._findings.append(
            Finding(
                severity=severity,
                reason=reason,
                where=printable(self._path.name),
                detail=detail,
            )
        )
