"""MCAP files, read from front to back: an index is not needed, and damage ends no reading early.

What is lost of a damaged file: chunks whose bytes do not match their checksum or cannot be
decompressed, up to the damage; what lies behind a length that leads out of the file.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import error as struct_error
from typing import BinaryIO, Final, Literal
from zlib import crc32

from ingest.errors import SourceError
from ingest.messages.log import Channel, Message
from ingest.messages.mcap.records import (
    CHANNEL,
    CHUNK,
    CHUNK_HEAD,
    DATA_END,
    FOOTER,
    FOOTER_BODY,
    MAGIC,
    MESSAGE,
    MESSAGE_HEAD,
    PREFIX,
    SCHEMA,
    STATISTICS,
    Definitions,
    RecordError,
    counts_of,
    records_in,
    text_at,
)
from ingest.messages.unpack import MOST_BYTES, ZSTD_MAGIC, unpack, unpack_message
from ingest.source import Finding, printable

_MOST_SUMMARY: Final = 256 << 20
_FOOTER_BYTES: Final = 9 + FOOTER_BODY.size + len(MAGIC)


def recognises_mcap(path: Path) -> bool:
    """True for a file that begins as MCAP does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_mcap(path: Path) -> "McapLog":
    """Open a file.

    Raises:
        SourceError: it cannot be read, or is no MCAP.
    """
    return McapLog(path)


class McapLog:
    """One MCAP file."""

    format = "mcap"

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._path = path
        self._definitions = Definitions()
        self._declared: tuple[int, dict[int, int]] | None = None
        self._findings: list[Finding] = []
        self._read: Counter[int] = Counter()
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}", reason="unreadable-file") from error
        self._size = self._file.seek(0, 2)
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            self._file.close()
            raise SourceError(f"{path}: no MCAP", reason="not-mcap")
        self._read_summary()

    def channels(self) -> Sequence[Channel]:
        """By the summary; of a file without one those that were met so far."""
        return list(self._definitions.channels.values())

    def findings(self) -> Sequence[Finding]:
        """What was lost, as far as it was read."""
        return tuple(self._findings)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def messages(self) -> Iterator[Message]:
        """All messages in the order of the file; memory is bounded by a chunk."""
        self._findings, self._read = [], Counter()
        at, ended = len(MAGIC), False
        while not ended and at + PREFIX.size <= self._size:
            kind, length = PREFIX.unpack(self._bytes(at, PREFIX.size))
            body, left = at + PREFIX.size, self._size - at - PREFIX.size
            if length > left:
                yield from self._cut_record(kind, body, left)
                self._lose("cut-short", f"a record of {length} bytes, {left} are left in the file")
                return
            at = body + length
            if kind == CHUNK:
                yield from self._chunk(body, length, whole=True)
            elif kind == MESSAGE:
                if length <= MOST_BYTES:
                    record = self._bytes(body - PREFIX.size, PREFIX.size + length)
                    yield from self._records(memoryview(record), body)
                else:
                    self._lose("bad-record", f"a message of {length} bytes at byte {body}")
            elif kind in {SCHEMA, CHANNEL}:
                self._define(kind, memoryview(self._bytes(body, length)), body)
            ended = kind in {DATA_END, FOOTER}
        if not ended:
            self._lose("cut-short", "the end of the file is missing; it was not closed")
        self._compare_counts()

    def _cut_record(self, kind: int, body: int, left: int) -> Iterator[Message]:
        """What is whole of a record that the file's end cuts."""
        if kind == CHUNK:
            yield from self._chunk(body, left, whole=False)

    def _chunk(self, at: int, length: int, *, whole: bool) -> Iterator[Message]:
        if length > MOST_BYTES:
            self._lose("damaged-chunk", f"a chunk of {length} bytes at byte {at}")
            return
        data = memoryview(self._bytes(at, length))
        try:
            _, _, size, checksum = CHUNK_HEAD.unpack_from(data, 0)
            packing, begin = text_at(data, CHUNK_HEAD.size)
        except (struct_error, RecordError):
            if whole:
                self._lose("damaged-chunk", f"a chunk of {length} bytes at byte {at}")
            return
        packed = data[begin + 8 :]
        records: bytes | memoryview = packed
        fault = ""
        if packing in {"zstd", "lz4"}:
            known: Literal["zstd", "lz4"] = "zstd" if packing == "zstd" else "lz4"
            records, fault = unpack(known, packed, size)
        elif packing:
            fault, records = f"compressed by {packing!r}, which is not known", b""
        elif whole and len(packed) != size:
            fault = f"{len(packed)} bytes of the {size} that are announced"
        if not fault and whole and checksum and crc32(records) != checksum:
            fault, records = "bytes that do not match their checksum", b""
        before = self._read.total()
        yield from self._records(memoryview(records), at)
        if fault and whole:
            kept = self._read.total() - before
            self._lose("damaged-chunk", f"the chunk at byte {at}: {fault}; {kept} messages kept")

    def _records(self, data: memoryview, at: int) -> Iterator[Message]:
        channels, counts = self._definitions.channels, self._read
        head, head_size = MESSAGE_HEAD.unpack_from, MESSAGE_HEAD.size
        unknown: Counter[int] = Counter()
        for kind, begin, end in records_in(data):
            if kind == MESSAGE:
                if end - begin < head_size:
                    self._lose("bad-record", f"a message of {end - begin} bytes behind byte {at}")
                    continue
                number, sequence, log_time, publish_time = head(data, begin)
                channel = channels.get(number)
                if channel is None:
                    unknown[number] += 1
                    continue
                payload = bytes(data[begin + head_size : end])
                if payload[:4] == ZSTD_MAGIC and channel.message_encoding == "cdr":
                    try:
                        payload = unpack_message(payload)
                    except ValueError as error:
                        self._lose("bad-message", f"{channel.topic}: {error}")
                        continue
                counts[number] += 1
                yield Message(channel, _time(log_time), _time(publish_time), sequence, payload)
            elif kind in {SCHEMA, CHANNEL}:
                self._define(kind, data[begin:end], at)
        for number, count in unknown.items():
            self._lose("unknown-channel", f"{count} messages of channel {number}, not defined")

    def _define(self, kind: int, body: memoryview, at: int) -> None:
        try:
            self._definitions.add(kind, body)
        except RecordError as error:
            self._lose("bad-record", f"{error} behind byte {at}")

    def _read_summary(self) -> None:
        """Channels and counts by the summary at the end of the file, where there is one."""
        if self._size < len(MAGIC) + _FOOTER_BYTES:
            return
        tail = self._bytes(self._size - _FOOTER_BYTES, _FOOTER_BYTES)
        kind, length = PREFIX.unpack_from(tail, 0)
        if not tail.endswith(MAGIC) or kind != FOOTER or length != FOOTER_BODY.size:
            return
        start, _, _ = FOOTER_BODY.unpack_from(tail, PREFIX.size)
        size = self._size - _FOOTER_BYTES - start
        if not start or not 0 < size <= _MOST_SUMMARY:
            return
        data = memoryview(self._bytes(start, size))
        try:
            for kind, begin, end in records_in(data):
                if kind in {SCHEMA, CHANNEL}:
                    self._definitions.add(kind, data[begin:end])
                elif kind == STATISTICS:
                    self._declared = counts_of(data[begin:end])
        except RecordError:
            self._declared = None  # the records of the data section say the same

    def _compare_counts(self) -> None:
        if self._declared is None:
            return
        total, by_channel = self._declared
        if total != self._read.total():
            self._lose("wrong-count", f"{self._read.total()} messages, its statistics say {total}")
            return
        for number, count in by_channel.items():
            if count != self._read[number]:
                said = f"{self._read[number]} messages of channel {number}, its statistics say"
                self._lose("wrong-count", f"{said} {count}")

    def _bytes(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        found = self._file.read(size)
        if len(found) < size:
            raise SourceError(f"{self._path}: became shorter while it was read", reason="changed")
        return found

    def _lose(self, reason: str, detail: str) -> None:
        self._findings.append(
            Finding(
                severity="error",
                reason=reason,
                where=printable(self._path.name),
                detail=detail,
            )
        )


def _time(stamp: int) -> int:
    """Nanoseconds as a signed number; those of damage would not fit."""
    return stamp if stamp < 1 << 63 else (1 << 63) - 1
