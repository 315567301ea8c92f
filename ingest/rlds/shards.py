"""A shard file of either kind: its records listed, and read one at a time."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ingest.errors import SourceError
from ingest.rlds import array_record, tfrecord


@dataclass(frozen=True, kw_only=True)
class ListedRecord:
    """A record.

    Attributes:
        fingerprint: what tells it from others.
        read: returns its data; raises EpisodeError where that is unreadable or damaged.
    """

    fingerprint: str
    read: Callable[[], bytes]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard, listed.

    Attributes:
        path: the file.
        records: the records that can be told apart.
        damage: what is lost behind the last of them, "" where nothing is.
    """

    path: Path
    records: tuple[ListedRecord, ...]
    damage: str = ""


def list_shard(path: Path) -> Shard:
    """List the records of a file.

    A TFRecord's fingerprint is of its length and stored checksum, so that the records of a
    shard keep their keys where the shard was cut short or grew.

    Raises:
        SourceError: empty, unreadable, compressed or damaged as a whole.
        MissingReaderError: the optional package is not installed.
    """
    if array_record.is_array_record(path):
        listed = [
            ListedRecord(fingerprint=mark, read=partial(array_record.read_record, path, number))
            for number, mark in enumerate(array_record.fingerprints(path))
        ]
        return Shard(path=path, records=tuple(listed))
    frames = tfrecord.scan(path)
    if frames.damage and not frames.records:
        raise SourceError(
            f"{path}: no whole record in {frames.size} bytes: {frames.damage}",
            reason="damaged-shard",
        )
    records = tuple(
        ListedRecord(fingerprint=_mark(record), read=partial(tfrecord.read_record, path, record))
        for record in frames.records
    )
    lost = frames.size - frames.sound_bytes
    return Shard(
        path=path,
        records=records,
        damage=f"{frames.damage}; {lost} of {frames.size} bytes are lost" if frames.damage else "",
    )


def _mark(record: tfrecord.Record) -> str:
    return hashlib.sha256(f"{record.length} {record.checksum}".encode()).hexdigest()[:32]
