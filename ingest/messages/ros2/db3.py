"""Storage files of rosbag2's sqlite3 plugin, of every version.

Tables (rosbag2_storage_sqlite3): `topics` and `messages`; `message_definitions` since version 4.
"""

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import copyfile
from typing import Any, Final
from urllib.parse import quote

from ingest.errors import SourceError
from ingest.messages.log import Channel, Message
from ingest.messages.unpack import ZSTD_MAGIC, unpack_message
from ingest.source import Finding, printable

MAGIC: Final = b"SQLite format 3\0"


def is_db3(path: Path) -> bool:
    """Whether a file is an SQLite database with rosbag2's tables."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
        log = Db3Log(path)
    except (OSError, SourceError):
        return False
    log.close()
    return True


class Db3Log:
    """One storage file.

    Raises:
        SourceError: it cannot be opened, or is none.
    """

    format = "sqlite3"

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._path = path
        self._findings: list[Finding] = []
        self._open = ExitStack()
        try:
            self._database = sqlite3.connect(self._uri(path), uri=True)
            self._open.callback(self._database.close)
            self._topics = self._read_topics()
        except (sqlite3.Error, OSError) as error:
            self._open.close()
            raise SourceError(f"{path}: no rosbag2 storage ({error})", reason="bad-db3") from error

    def channels(self) -> Sequence[Channel]:
        """All topics."""
        return list(self._topics.values())

    def findings(self) -> Sequence[Finding]:
        """What was lost, as far as it was read."""
        return tuple(self._findings)

    def close(self) -> None:
        """Close the database."""
        self._open.close()

    def messages(self) -> Iterator[Message]:
        """All messages in the order in which they were written."""
        self._findings = []
        count = 0
        try:
            rows = self._database.execute(
                "SELECT topic_id, timestamp, data FROM messages ORDER BY id"
            )
            for topic_id, stamp, data in rows:
                channel = self._topics.get(topic_id)
                if channel is None or type(stamp) is not int or type(data) is not bytes:
                    self._lose("bad-record", f"message {count} of topic {topic_id!r} is none")
                    continue
                if data[:4] == ZSTD_MAGIC and channel.message_encoding == "cdr":
                    try:
                        data = unpack_message(data)  # noqa: PLW2901  the same message
                    except ValueError as error:
                        self._lose("bad-message", f"{channel.topic}: {error}")
                        continue
                yield Message(channel, stamp, stamp, count, data)
                count += 1
        except sqlite3.Error as error:
            self._lose("cut-short", f"the database is damaged ({error}); {count} messages are read")

    def _uri(self, path: Path) -> str:
        """Read-only; with what a recorder that was killed left beside it."""
        journal = path.with_name(f"{path.name}-wal")
        if journal.exists() and journal.stat().st_size:
            folder = tempfile.TemporaryDirectory(prefix="headrace-")
            copy = Path(self._open.enter_context(folder)) / path.name
            copyfile(path, copy)
            copyfile(journal, copy.with_name(journal.name))
            return f"file:{quote(str(copy))}"
        return f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"

    def _read_topics(self) -> dict[int, Channel]:
        definitions = self._read_definitions()
        found: dict[int, Channel] = {}
        for row in self._rows("topics"):
            kind = str(row["type"])
            encoding, text = definitions.get(kind, ("", ""))
            found[row["id"]] = Channel(
                id=row["id"],
                topic=printable(str(row["name"])),
                schema_name=kind,
                schema_encoding=encoding if text.strip() else "",
                schema=text.encode("utf-8", "backslashreplace"),
                message_encoding=str(row.get("serialization_format", "cdr")),
                metadata={"offered_qos_profiles": str(row.get("offered_qos_profiles", ""))},
            )
        self._database.execute("SELECT topic_id, timestamp, data FROM messages LIMIT 0")
        return found

    def _read_definitions(self) -> dict[str, tuple[str, str]]:
        tables = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if ("message_definitions",) not in tables.fetchall():
            return {}
        return {
            str(row["topic_type"]): (str(row["encoding"]), str(row["encoded_message_definition"]))
            for row in self._rows("message_definitions")
        }

    def _rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        cursor = self._database.execute(f"SELECT * FROM {table}")  # noqa: S608  names of our own
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))

    def _lose(self, reason: str, detail: str) -> None:
        self._findings.append(
            Finding(
                severity="error",
                reason=reason,
                where=printable(self._path.name),
                detail=detail,
            )
        )
