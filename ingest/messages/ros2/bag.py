"""ROS 2 bags: a folder of storage files that follow each other, or one such file.

The storage files are opened themselves, one after the other. What `metadata.yaml` says is compared
with what was read; it may be missing, as after a crash.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from ingest.errors import SourceError
from ingest.messages.log import Channel, Message, MessageLog
from ingest.messages.mcap.log import McapLog, recognises_mcap
from ingest.messages.mcap.records import MAGIC as MCAP_MAGIC
from ingest.messages.ros2.db3 import MAGIC as DB3_MAGIC
from ingest.messages.ros2.db3 import Db3Log, is_db3
from ingest.messages.ros2.metadata import NAME, BagMetadata, is_metadata, read_metadata
from ingest.messages.unpack import ZSTD_MAGIC, unpack_to_file, unpacks_to
from ingest.natural_order import natural_key
from ingest.source import Finding, printable

_STORAGE: Final = re.compile(r"(.+)_([0-9]+)\.(db3|mcap)(\.zstd)?")


def recognises_rosbag2(path: Path) -> bool:
    """True for a bag's folder, and for a storage file that is no bare MCAP."""
    if path.is_dir():
        return is_metadata(path / NAME) or bool(_numbered_files(path))
    return is_db3(path) or unpacks_to(path, (MCAP_MAGIC, DB3_MAGIC))


def open_rosbag2(path: Path) -> "Rosbag2Log":
    """Open a bag.

    Raises:
        SourceError: a folder without any storage file.
        MissingReaderError: an optional package is not installed.
    """
    return Rosbag2Log(path)


class Rosbag2Log:
    """A bag of one or more storage files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: list[Finding] = []
        self._findings: list[Finding] = []
        self._channels: dict[tuple[str, str, str, str, bytes], Channel] = {}
        self._metadata = BagMetadata()
        if path.is_dir():
            self.files = self._find_files(path)
        else:
            self.files = (path,)
        if not self.files:
            raise SourceError(f"{path}: a bag without storage files", reason="no-storage")

    @property
    def format(self) -> str:
        """With the kind of its first file."""
        kind = "mcap" if ".mcap" in self.files[0].suffixes else "sqlite3"
        return f"ros2-bag-{kind}"

    def channels(self) -> Sequence[Channel]:
        """Those that were met so far."""
        return list(self._channels.values())

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the folder, and what was lost, as far as it was read."""
        return (*self._known, *self._findings)

    def close(self) -> None:
        """Files are open while they are read only."""

    def messages(self) -> Iterator[Message]:
        """All messages, file after file."""
        self._findings = []
        read: Counter[str] = Counter()
        for path in self.files:
            try:
                with _storage(path) as (storage, fault):
                    if fault:
                        self._tell("error", "damaged-file", path.name, fault)
                    yield from self._messages_of(storage, read)
                    self._findings += storage.findings()
            except SourceError as error:
                self._tell("error", error.reason, path.name, str(error))
        self._compare_counts(read)

    def _messages_of(self, storage: MessageLog, read: Counter[str]) -> Iterator[Message]:
        renamed: dict[int, tuple[Channel, Channel]] = {}
        for channel, log_time, publish_time, sequence, payload in storage.messages():
            known = renamed.get(channel.id)
            if known is None or known[0] is not channel:
                known = renamed[channel.id] = (channel, self._own(channel))
            read[channel.topic] += 1
            yield Message(known[1], log_time, publish_time, sequence, payload)

    def _own(self, channel: Channel) -> Channel:
        """The bag's channel: files number theirs each for itself."""
        key = (
            channel.topic,
            channel.schema_name,
            channel.schema_encoding,
            channel.message_encoding,
            channel.schema,
        )
        if key not in self._channels:
            self._channels[key] = Channel(
                id=len(self._channels) + 1,
                topic=channel.topic,
                schema_name=channel.schema_name,
                schema_encoding=channel.schema_encoding,
                schema=channel.schema,
                message_encoding=channel.message_encoding,
                metadata=channel.metadata,
            )
        return self._channels[key]

    def _find_files(self, folder: Path) -> tuple[Path, ...]:
        """As the metadata lists them, else by their numbers; those it forgot too."""
        listed: list[Path] = []
        if (folder / NAME).exists():
            try:
                self._metadata = read_metadata(folder / NAME)
            except ValueError as error:
                detail = f"cannot be read ({error}); the files beside it are"
                self._known.append(_finding("warning", "bad-metadata", NAME, detail))
        else:
            detail = "is missing; the files are read by their numbers"
            self._known.append(_finding("warning", "no-metadata", NAME, detail))
        for name in self._metadata.files:
            path = folder / Path(name).name  # older versions list them with the folder's name
            if path.is_file():
                listed.append(path)
            else:
                detail = "is listed in metadata.yaml and not there; its messages are lost"
                self._known.append(_finding("error", "missing-file", name, detail))
        forgotten = [path for path in _numbered_files(folder) if path not in listed]
        if listed and forgotten:
            names = ", ".join(path.name for path in forgotten[:5])
            detail = f"lists {len(listed)} files and not {names}; they are read behind those"
            self._known.append(_finding("warning", "unlisted-file", NAME, detail))
        return (*listed, *forgotten)

    def _compare_counts(self, read: Counter[str]) -> None:
        for topic, count in self._metadata.counts.items():
            if read[topic] != count:
                severity: Literal["error", "warning"] = (
                    "error" if read[topic] < count else "warning"
                )
                detail = f"{topic}: {read[topic]} messages, metadata.yaml says {count}"
                self._tell(severity, "wrong-count", NAME, detail)

    def _tell(
        self, severity: Literal["error", "warning"], reason: str, where: str, detail: str
    ) -> None:
        self._findings.append(_finding(severity, reason, where, detail))


@contextmanager
def _storage(path: Path) -> Iterator[tuple[MessageLog, str]]:
    """A storage file, opened, and what is wrong with it.

    One that was compressed as a whole is unpacked for the time; what precedes damage is read.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        with path.open("rb") as file:
            is_packed = file.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC
        opened, fault = path, ""
        if is_packed:
            opened = Path(folder) / path.name.removesuffix(".zstd")
            fault = unpack_to_file(path, opened)
            if fault and not opened.stat().st_size:
                raise SourceError(f"{path}: {fault}", reason="damaged-file")
        storage: MessageLog = McapLog(opened) if recognises_mcap(opened) else Db3Log(opened)
        try:
            yield storage, fault
        finally:
            storage.close()


def _numbered_files(folder: Path) -> list[Path]:
    """Files called after the folder and a number, in the order of the numbers."""
    try:
        found = [
            path
            for path in folder.iterdir()
            if (match := _STORAGE.fullmatch(path.name)) and match[1] == folder.resolve().name
        ]
    except OSError:
        return []
    return sorted(found, key=lambda path: natural_key(path.name))


def _finding(
    severity: Literal["error", "warning"], reason: str, where: str, detail: str
) -> Finding:
    return Finding(
        severity=severity, reason=reason, where=printable(where), detail=printable(detail)
    )
