"""ArrayRecord shards (TFDS `fileFormat: array_record`), through the package `array-record`.

An ArrayRecord is a Riegeli file, which starts with a fixed signature; the package verifies its
checksums.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ingest.errors import EpisodeError, MissingReaderError, SourceError
from ingest.source import file_fingerprint

# Block header of Riegeli's signature chunk: HighwayHash of it, then previous and next chunk.
_SIGNATURE: Final = bytes.fromhex("83af70d10d884a3f")


def is_array_record(path: Path) -> bool:
    """True where a file starts as a Riegeli file does, or is named as an ArrayRecord shard is."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_SIGNATURE))
    except OSError:
        return False
    return start == _SIGNATURE or ".array_record" in path.name


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        from array_record.python import array_record_module  # noqa: PLC0415  optional
    except ImportError as error:
        raise MissingReaderError(
            f"{path}: ArrayRecord files need array-record: pip install 'headrace[rlds]'"
        ) from error
    reader = array_record_module.ArrayRecordReader(str(path))
    try:
        yield reader
    finally:
        reader.close()


def fingerprints(path: Path) -> list[str]:
    """A fingerprint for each record, of the file and the record's number.

    Raises:
        SourceError: empty or damaged: an ArrayRecord's index stands at its end, so of a file that
            was cut short nothing can be found.
        MissingReaderError: array-record is not installed.
    """
    try:
        with _opened(path) as reader:
            count = int(reader.num_records())
    except (RuntimeError, ValueError, OSError) as error:
        raise SourceError(f"{path}: {error}", reason="damaged-shard") from error
    mark = file_fingerprint(path)
    return [f"{mark} {number}" for number in range(count)]


def read_record(path: Path, number: int) -> bytes:
    """The data of a record.

    Raises:
        EpisodeError: damaged.
        MissingReaderError: array-record is not installed.
    """
    try:
        with _opened(path) as reader:
            [data] = reader.read([number])
    except (RuntimeError, ValueError, OSError, IndexError) as error:
        raise EpisodeError(f"{path}: record {number}: {error}", reason="bad-record") from error
    return bytes(data)
