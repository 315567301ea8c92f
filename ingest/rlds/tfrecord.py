"""TFRecord framing: length u64, its masked CRC-32C, data, the data's masked CRC-32C; little endian.

Source: TensorFlow, `core/lib/io/record_writer.h`. A prefix that ends with a record is a valid file,
so a truncated shard still yields every record before the cut.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingest.errors import EpisodeError, SourceError
from ingest.rlds.crc32c import crc32c_of_data, masked, masked_crc32c_of_few

_HEADER: Final = 12
_FOOTER: Final = 4
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Where a record's data lies in its file, in bytes, and its stored masked CRC-32C."""

    start: int
    length: int
    checksum: int


@dataclass(frozen=True, kw_only=True)
class Frames:
    """The records of a shard up to the first header that is not one.

    Attributes:
        records: those whose headers hold; their data is not checked yet.
        size: bytes of the file.
        sound_bytes: where the last of `records` ends.
        damage: why the rest cannot be framed, "" where there is no rest.
    """

    records: tuple[Record, ...]
    size: int
    sound_bytes: int
    damage: str = ""


def is_tfrecord(path: Path) -> bool:
    """True where a file starts with a length that agrees with its checksum."""
    try:
        with path.open("rb") as file:
            return _length(file.read(_HEADER)) is not None
    except OSError:
        return False


def scan(path: Path) -> Frames:
    """List the records of a shard; reads 16 bytes per record.

    Raises:
        SourceError: empty, unreadable, or compressed as a whole.
    """
    try:
        with path.open("rb") as file:
            return _scan(path, file.fileno())
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}", reason="unreadable-file") from error


def _scan(path: Path, descriptor: int) -> Frames:
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise SourceError(f"{path}: empty file", reason="empty-file")
    records: list[Record] = []
    at, damage = 0, ""
    header = os.pread(descriptor, _HEADER, 0)
    while at < size:
        length = _length(header)
        if length is None:
            damage = (
                f"{len(header)} bytes are left, less than a record's header"
                if len(header) < _HEADER
                else "a record's length does not match its checksum"
            )
            break
        start = at + _HEADER
        if start + length + _FOOTER > size:
            damage = f"a record of {length} bytes is cut off after {size - start}"
            break
        rest = os.pread(descriptor, _FOOTER + _HEADER, start + length)
        checksum = int.from_bytes(rest[:_FOOTER], "little")
        records.append(Record(start=start, length=length, checksum=checksum))
        at, header = start + length + _FOOTER, rest[_FOOTER:]
    if not records and header[:2] in _COMPRESSED:
        raise SourceError(
            f"{path}: compressed as a whole; decompress it first", reason="compressed-file"
        )
    return Frames(records=tuple(records), size=size, sound_bytes=at, damage=damage)


def _length(header: bytes) -> int | None:
    """The length a header states, None where it is incomplete or its checksum differs."""
    if len(header) < _HEADER:
        return None
    length, checksum = struct.unpack("<QI", header)
    return int(length) if masked_crc32c_of_few(header[:8]) == checksum else None


def read_record(path: Path, record: Record) -> bytes:
    """The data of a record, its checksum verified.

    Raises:
        EpisodeError: unreadable, or not what was written.
        MissingReaderError: google-crc32c is not installed.
    """
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), record.length, record.start)
            # Linux returns at most 2 GiB at a time.
            while 0 < len(data) < record.length:
                more = os.pread(file.fileno(), record.length - len(data), record.start + len(data))
                if not more:
                    break
                data += more
    except OSError as error:
        raise EpisodeError(f"{path}: {error.strerror}", reason="unreadable-file") from error
    if len(data) != record.length or masked(crc32c_of_data()(data)) != record.checksum:
        raise EpisodeError(
            f"{path}: the {record.length} bytes at {record.start} do not match their checksum",
            reason="bad-checksum",
        )
    return data
