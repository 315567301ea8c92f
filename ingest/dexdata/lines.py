"""The lines of an episode: one JSON object per step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingest.errors import EpisodeError
from ingest.source import printable

_MOST_LINE_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What could be read.

    Attributes:
        steps: the objects, in order.
        damage: why what follows them is lost, "" where nothing is.
    """

    steps: Sequence[dict[str, Any]]
    damage: str = ""


def read_lines(path: Path) -> Lines:
    """All lines up to the first that is no JSON object.

    Raises:
        EpisodeError: the file cannot be read, or its first line already is none.
    """
    steps: list[dict[str, Any]] = []
    damage = ""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MOST_LINE_BYTES):
                number += 1
                if not line.strip():
                    continue
                step = as_object(line)
                if step is None:
                    damage = f"line {number} is no JSON object"
                    break
                steps.append(step)
    except OSError as error:
        raise EpisodeError(
            f"{path}: cannot be read ({error.strerror})", reason="unreadable-file"
        ) from error
    if not steps:
        raise EpisodeError(
            f"{path}: {damage or 'no line'}: nothing can be read",
            reason="bad-json" if damage else "empty-file",
        )
    return Lines(steps=steps, damage=damage)


def as_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line, None where it is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def first_object(path: Path) -> dict[str, Any] | None:
    """The object of a file's first line, None where it is none or cannot be read."""
    try:
        with path.open("rb") as file:
            return as_object(file.readline(_MOST_LINE_BYTES))
    except OSError:
        return None


def place(path: Path, root: Path) -> str:
    """A file as text, relative to the recording."""
    return printable(path.relative_to(root).as_posix())
