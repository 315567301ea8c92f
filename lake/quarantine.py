"""What was refused, kept so that nothing is lost without a word."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class QuarantineEntry:
    """One refusal.

    Attributes:
        source: name of the source.
        episode: locator of the episode, "" where the whole source is refused.
        stream: the stream at fault, "" where the whole episode is.
        reason: short stable code.
        detail: one sentence: what was found, and what can be done.
        dataset: dataset the episode would have belonged to.
    """

    source: str
    episode: str
    stream: str
    reason: str
    detail: str
    dataset: str = ""

    @property
    def key(self) -> str:
        """SHA-256 (hex) of the content: the same refusal met again is one row."""
        parts = (
            self.source, self.dataset, self.episode, self.stream, self.reason, self.detail
        )  # fmt: skip
        return hashlib.sha256(_storable("\0".join(parts)).encode()).hexdigest()


def quarantine_rows(entries: Sequence[QuarantineEntry]) -> pa.Table:
    """Rows for the `quarantine` table; entries with the same content become one."""
    distinct = {entry.key: entry for entry in entries}
    names = ("source", "dataset", "episode", "stream", "reason", "detail")
    columns: dict[str, list[str] | list[int]] = {"quarantine_key": list(distinct)}
    for name in names:
        columns[name] = [_storable(getattr(entry, name)) for entry in distinct.values()]
    columns["time_ns"] = [time.time_ns()] * len(distinct)
    return pa.table(columns)


def _storable(text: str) -> str:
    r"""The text with lone surrogates, which stand for bytes of a file name, as `\udc..`."""
    return text.encode("utf-8", "backslashreplace").decode()
