"""JSON messages as path -> value.

Source: the well-known schemas of Foxglove (docs.foxglove.dev/docs/visualization/message-schemas),
which write stamps as `{"sec": ..., "nsec": ...}` and bytes as base64.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ingest.errors import EpisodeError

_NS: Final = 1_000_000_000
_SECONDS: Final = ("sec", "secs")
_NANOSECONDS: Final = ("nsec", "nsecs", "nanosec", "nanosecs")
_MOST_DEPTH: Final = 24


def json_fields(payload: bytes) -> Mapping[str, Any]:
    """Values of one message; one that is no object has its value at the path `data`.

    Raises:
        EpisodeError: no JSON, or nested too deep.
    """
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise EpisodeError(f"no JSON ({error})", reason="bad-message") from error
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        _flatten(value, "", found, 0)
    else:
        _put(value, "data", found, 0)
    return found


def _flatten(value: Mapping[str, Any], path: str, found: dict[str, Any], depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise EpisodeError(f"{path} is nested too deep", reason="bad-message")
    for key, inner in value.items():
        _put(inner, f"{path}.{key}" if path else key, found, depth)


def _put(value: Any, path: str, found: dict[str, Any], depth: int) -> None:  # noqa: ANN401  JSON
    if isinstance(value, dict):
        stamp = _stamp(value)
        if stamp is None:
            _flatten(value, path, found, depth + 1)
        else:
            found[path] = stamp
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        rows: list[dict[str, Any]] = [{} for _ in value]
        for row, item in zip(rows, value, strict=True):
            _flatten(item, f"{path}[]", row, depth + 1)
        for inner in dict.fromkeys(name for row in rows for name in row):
            found[inner] = [row.get(inner) for row in rows]
    else:
        found[path] = value


def _stamp(value: Mapping[str, Any]) -> np.datetime64 | None:
    if len(value) != 2:
        return None
    seconds = next((value[name] for name in _SECONDS if name in value), None)
    rest = next((value[name] for name in _NANOSECONDS if name in value), None)
    if type(seconds) is not int or type(rest) is not int:
        return None
    stamp = seconds * _NS + rest
    return np.datetime64(stamp, "ns") if abs(stamp) < 1 << 63 else None


def json_dtypes(schema: bytes) -> Mapping[str, str]:
    """Types of the paths that a JSON schema says to be integers; others are found from values.

    A schema that cannot be parsed says nothing.
    """
    try:
        root = json.loads(schema)
    except (ValueError, RecursionError):
        return {}
    return dict(_declared(root, "", 0)) if isinstance(root, dict) else {}


def _declared(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, str]]:
    kind = schema.get("type")
    if kind == "integer":
        yield path, "int64"
    if depth > _MOST_DEPTH:
        return
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict):
        inside = f"{path}[]" if items.get("type") == "object" else path
        yield from _declared(items, inside, depth + 1)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, inner in properties.items():
            if isinstance(inner, dict):
                yield from _declared(inner, f"{path}.{name}" if path else name, depth + 1)
