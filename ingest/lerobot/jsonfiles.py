"""Reading the JSON and JSON-lines files under `meta/`, with errors that name file and line."""

import json
from pathlib import Path
from typing import Any

from ingest.errors import SourceError
from ingest.source import Finding


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        SourceError: missing, empty, not JSON, or not an object.
    """
    text = _read_text(path)
    if not text.strip():
        raise SourceError(
            f"{path}: empty file ({len(text)} bytes); copy it again from where it came from",
            reason="empty-file",
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON ({error})", reason="bad-json") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path}: a JSON object is expected", reason="bad-json")
    return value


def read_json_lines(path: Path, root: Path) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The JSON objects in `path`, one per line, and a finding for each line that is none.

    The last line of a file whose writer was killed is often cut: the lines before it are good.

    Raises:
        SourceError: missing file, or not one good line in it.
    """
    rows: list[dict[str, Any]] = []
    findings: list[Finding] = []
    # Not splitlines(): JSON text may hold U+2028 and its like unescaped.
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
            continue
        findings.append(
            Finding(
                severity="error",
                reason="bad-json",
                where=f"{path.relative_to(root)} line {number}",
                detail=f"not a JSON object ({line[:40]!r}); the other lines are used",
            )
        )
    if not rows:
        raise SourceError(f"{path}: holds no JSON object", reason="empty-file")
    return rows, findings


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SourceError(f"{path}: missing file", reason="missing-file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read ({error})", reason="unreadable-file") from error
