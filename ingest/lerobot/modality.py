"""GR00T's `meta/modality.json`: names for parts of the flat vectors, and annotation columns.

It adds `state`, `action` (name -> [start, end) of a column), `video` (name -> column) and
`annotation` (name -> column of indices into the task table) to a v2 dataset.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingest.errors import SourceError
from ingest.lerobot.jsonfiles import read_json
from ingest.source import Finding

_WHERE: Final = "meta/modality.json"
_DEFAULT_KEYS: Final = {"state": "observation.state", "action": "action"}


@dataclass(frozen=True, kw_only=True)
class ModalitySlice:
    """A named part [start, stop) of a flat column, with every other fact as text."""

    name: str
    key: str
    start: int
    stop: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Modality:
    """The parsed file.

    Attributes:
        slices: parts of state and action columns.
        cameras: the file's camera name -> dataset key.
        annotations: the file's annotation name -> column holding indices into the task table.
    """

    slices: tuple[ModalitySlice, ...] = ()
    cameras: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


def read_modality(root: Path) -> tuple[Modality, list[Finding]]:
    """Read `meta/modality.json`; a dataset without one has an empty modality."""
    path = root / _WHERE
    if not path.exists():
        return Modality(), []
    try:
        raw = read_json(path)
    except SourceError as error:
        return Modality(), [_finding(error.reason, f"{error}; the file is not used")]
    findings: list[Finding] = []
    slices: list[ModalitySlice] = []
    for group, default in _DEFAULT_KEYS.items():
        for name, entry in _group(raw, group, findings).items():
            start, stop = entry.get("start"), entry.get("end")
            if not isinstance(start, int) or not isinstance(stop, int) or not 0 <= start < stop:
                findings.append(
                    _finding("bad-slice", f"{group}.{name} is [{start!r}, {stop!r}); not used")
                )
                continue
            key = entry.get("original_key") or default
            attributes = {
                fact: value if isinstance(value, str) else json.dumps(value)
                for fact, value in entry.items()
                if fact not in {"start", "end"} and value is not None
            }
            slices.append(
                ModalitySlice(
                    name=name, key=str(key), start=start, stop=stop, attributes=attributes
                )
            )
    cameras = {
        name: str(entry.get("original_key") or f"observation.images.{name}")
        for name, entry in _group(raw, "video", findings).items()
    }
    annotations = {
        name: str(entry.get("original_key") or f"annotation.{name}")
        for name, entry in _group(raw, "annotation", findings).items()
    }
    return Modality(slices=tuple(slices), cameras=cameras, annotations=annotations), findings


def _group(raw: Mapping[str, Any], name: str, findings: list[Finding]) -> dict[str, dict[str, Any]]:
    group = raw.get(name, {})
    if not isinstance(group, dict):
        findings.append(_finding("bad-modality", f"{name} is no object; not used"))
        return {}
    good = {str(key): entry for key, entry in group.items() if isinstance(entry, dict)}
    if len(good) != len(group):
        findings.append(_finding("bad-modality", f"{name} has entries that are no objects"))
    return good


def _finding(reason: str, detail: str) -> Finding:
    return Finding(severity="warning", reason=reason, where=_WHERE, detail=detail)
