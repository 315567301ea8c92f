"""GR00T's `meta/modality.json` from the named parts, cameras and annotations of a spec."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ingest.export.lerobot.schema import Camera
from lake.spec import Spec

_CAMERA: Final = "modality_camera:"
_DEFAULT_KEYS: Final = {"state": "observation.state", "action": "action"}


def modality(
    spec: Spec,
    keys: Mapping[str, str],
    cameras: tuple[Camera, ...],
    annotations: Mapping[str, str],
) -> str:
    """The file's content, "" where the spec has neither named parts nor annotations.

    Args:
        spec: of the episodes.
        keys: LeRobot's key of each feature and camera that is written.
        cameras: those that are written.
        annotations: key -> annotation name, of columns that are written.
    """
    groups: dict[str, dict[str, Any]] = {"state": {}, "action": {}}
    for part in spec.slices:
        if part.feature not in keys:
            continue
        key = keys[part.feature]
        facts = {name: _value(text) for name, text in part.attributes.items()}
        group = "action" if spec.feature(part.feature).role == "action" else "state"
        if "original_key" in facts or key != _DEFAULT_KEYS[group]:
            facts["original_key"] = key
        groups[group][part.name] = {"start": part.start, "end": part.stop, **facts}
    if not groups["state"] and not groups["action"] and not annotations:
        return ""
    groups["video"] = {
        spec.conventions.get(_CAMERA + camera.name, camera.name): {"original_key": camera.key}
        for camera in cameras
    }
    if annotations:
        groups["annotation"] = {
            name: {} if key == f"annotation.{name}" else {"original_key": key}
            for key, name in annotations.items()
        }
    return json.dumps(groups, indent=4, ensure_ascii=False)


def _value(text: str) -> object:
    """An attribute as it stood in the file: text, or whatever else was written as JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value
