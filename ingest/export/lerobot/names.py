"""Names in the lake to LeRobot's feature keys."""

from collections.abc import Mapping, Sequence
from typing import Final

from ingest.export.errors import UnfitError
from lake.spec import CameraSpec, FeatureSpec, Role

INDEX_COLUMNS: Final = ("timestamp", "frame_index", "episode_index", "index", "task_index")
"""The columns that every LeRobot dataset has, and that an export writes anew."""

TASK_KEY: Final = "task"
"""What LeRobot puts the text of the task under, in place of any feature of that name."""

_KEY_OF_ROLE: Final[Mapping[Role, str]] = {
    "state": "observation.state",
    "action": "action",
    "reward": "next.reward",
    "done": "next.done",
    "success": "next.success",
}


def is_lerobot(recorded_as: str) -> bool:
    """Whether a recording format is one of LeRobot's, so that names in the source are keys."""
    return recorded_as.startswith("lerobot")


def lerobot_keys(
    recorded_as: str,
    features: Sequence[FeatureSpec],
    cameras: Sequence[CameraSpec],
    renamed: Mapping[str, str],
) -> dict[str, str]:
    """Key of each feature and camera, by its name in the lake.

    Recorded by LeRobot: the key it had. Else by role, the only state being `observation.state` and
    the only action `action`; other features go by `observation.<name>`, cameras by
    `observation.images.<name>`.

    Args:
        recorded_as: the recording format.
        features: those to be written.
        cameras: those to be written.
        renamed: names in the lake whose keys the user chose.

    Raises:
        UnfitError: `reserved-name` or `name-twice`.
    """
    roles = [feature.role for feature in features]
    keys: dict[str, str] = {}
    for feature in features:
        key = _KEY_OF_ROLE.get(feature.role)
        if is_lerobot(recorded_as):
            key = feature.source_name
        elif key is None or roles.count(feature.role) > 1:
            key = f"observation.{feature.name}"
        keys[feature.name] = key
    for camera in cameras:
        theirs = is_lerobot(recorded_as)
        keys[camera.name] = camera.source_name if theirs else f"observation.images.{camera.name}"
    keys |= {name: key for name, key in renamed.items() if name in keys}
    own = {f.name for f in features if is_lerobot(recorded_as) and f.name not in renamed}
    for name, key in keys.items():
        if key == TASK_KEY or (key in INDEX_COLUMNS and name not in own):
            raise UnfitError(
                f"LeRobot has another meaning for {key!r}; give it a key of its own: --rename"
                f" {name}=observation.{name}",
                reason="reserved-name",
                stream=name,
            )
        twin = next(n for n, k in keys.items() if k == key)
        if twin != name:
            raise UnfitError(
                f"{twin} and {name} would both be called {key!r}; give one another key: --rename"
                f" {name}=observation.{name}_2",
                reason="name-twice",
                stream=name,
            )
    return keys
