"""An episode that is made of step ranges of others: a part that was split off, or several in one.

Nothing of it is stored but its facts and which steps it consists of. It has a row address like any
other episode, by which `lake.take` and `lake.read_video` make up its row from those of the
episodes that it is made of.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, Self

import xxhash

from lake.errors import CorruptDataError
from lake.tables import TABLES

_VIEW: Final = 1 << 62  # fragment numbers of Lance, the upper half of an address, start at 0
BULK: Final = frozenset({"timestamps_ns", "video_indexes", "video"})
"""Columns of `trajectories` besides features that a view takes from other rows."""


def is_view(address: int) -> bool:
    """Whether an address is that of a view."""
    return address >> 62 == 1


@dataclass(frozen=True, kw_only=True)
class Part:
    """Steps [start, stop) of a stored episode, whose stamps are moved by `shift_ns`."""

    episode_id: str
    ingest_key: str
    commit_id: str
    start: int
    stop: int
    shift_ns: int = 0

    @property
    def stored(self) -> tuple[str, str]:
        """What names the stored row: ingest key and commit id."""
        return (self.ingest_key, self.commit_id)


@dataclass(frozen=True)
class View:
    """An episode made of parts of others.

    Attributes:
        parts: what it consists of, in order.
        facts: its row of `trajectories`, without features and `BULK`.
    """

    parts: tuple[Part, ...]
    facts: Mapping[str, Any]

    @property
    def episode_id(self) -> str:
        """Id of the episode."""
        return str(self.facts["episode_id"])

    @cached_property
    def address(self) -> int:
        """A hash of all that the view is, so that one address never means two things."""
        text = json.dumps(self._content(), sort_keys=True)
        return _VIEW | (xxhash.xxh3_64_intdigest(text.encode()) & (_VIEW - 1))

    def to_json(self) -> str:
        """The view as a JSON object: its facts by name, `parts` and `address`."""
        return json.dumps({**self._content(), "address": self.address}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse what `to_json` wrote.

        Raises:
            CorruptDataError: it is not that.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            address = found.pop("address")
            parts = tuple(Part(**part) for part in found.pop("parts"))
            found["content_sha256"] = bytes.fromhex(found["content_sha256"])
            view = cls(parts, found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptDataError(f"table edits: a view cannot be parsed ({error})") from error
        if view.address != address or not parts:
            raise CorruptDataError("table edits: a view does not match its address, a hash of it")
        return view

    def _content(self) -> dict[str, Any]:
        parts = [asdict(part) for part in self.parts]
        return {**self.facts, "content_sha256": self.facts["content_sha256"].hex(), "parts": parts}


def facts_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row of `trajectories` that a view keeps."""
    return {name: row[name] for name in TABLES["trajectories"].names if name not in BULK}


def cut_parts(parts: Sequence[Part], start: int, stop: int) -> tuple[Part, ...]:
    """The parts that steps [start, stop) of an episode made of `parts` consist of."""
    found, first = [], 0
    for part in parts:
        begin = part.start + max(start - first, 0)
        end = min(part.start + stop - first, part.stop)
        if begin < end:
            found.append(Part(**{**asdict(part), "start": begin, "stop": end}))
        first += part.stop - part.start
    return tuple(found)
