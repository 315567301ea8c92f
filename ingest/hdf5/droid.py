"""DROID raw: a folder per episode with `trajectory.h5`, its metadata and an MP4 per camera.

Layout from droid-dataset.github.io and DROID's `to_tfrecord.py`:
`<lab>/{success,failure}/<date>/<time>/` with `metadata_<uuid>.json`, `trajectory.h5` and
`recordings/MP4/<serial>.mp4`. The folder says whether it succeeded; the control loop runs at 15 Hz.
Stamps are milliseconds of the robot's clock. Instructions are published apart from the recordings,
keyed by the uuid: a file `aggregated-annotations-*.json` in a folder above is read where it lies
there.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.recorded import Recorded, proposed_spec, read_recorded
from ingest.arrays.streams import Stream, broken_streams, distinct_names
from ingest.errors import EpisodeError, SourceError
from ingest.hdf5.files import child, datasets_below, num_rows, open_file, read_rows
from ingest.hdf5.rows import Hdf5Rows
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    printable,
)
from ingest.whole_videos import read_whole_videos
from lake.spec import Role, Spec, canonical_name

FORMAT_NAME: Final = "hdf5-droid"
_TRAJECTORY: Final = "trajectory.h5"
_FPS: Final = 15.0
_OUTCOMES: Final = {"success": True, "failure": False}
_STAMPS: Final = "observation/timestamp/control/step_start"
_STEPS: Final = ("action/joint_position", "action/cartesian_position", "action/joint_velocity")
_ACTIONS: Final = ("action/cartesian_position", "action/gripper_position")
_STATES: Final = (
    "observation/robot_state/cartesian_position",
    "observation/robot_state/gripper_position",
    "observation/robot_state/joint_positions",
)
_ANNOTATIONS: Final = "aggregated-annotations-*.json"
_MOST_JSON_BYTES: Final = 256 << 20
_CONVENTIONS: Final = {
    "action_timing": "action[t] was sent after observation[t]",
    "gripper": "0 open, 1 closed",
    "skipped_steps": "observation/timestamp/skip_action and controller_info/movement_enabled say at"
    " which steps nothing was sent; none is left out",
}


class DroidSource:
    """One episode's folder.

    Args:
        root: with `trajectory.h5` in it.
        options: the user's choices.

    Raises:
        MissingReaderError: h5py is not installed.
        SourceError: the file cannot be opened.
    """

    format = FORMAT_NAME

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._path = root.resolve()
        self._file = open_file(root / _TRAJECTORY)
        self._metadata, self._bad_metadata = _metadata(root)

    @cached_property
    def dataset(self) -> str:
        """The user's name, else the lab's: the folder above `success` and `failure`."""
        return printable(self._options.dataset or _lab(self._path) or "droid")

    @cached_property
    def spec(self) -> Spec:
        """Spec of the trajectory and of the cameras whose videos are there."""
        (entry,) = self.entries()
        try:
            recorded = self._describe(entry.locator)
        except EpisodeError as error:
            raise SourceError(str(error), reason=error.reason) from error
        videos = read_whole_videos(
            self._videos(), recorded.num_steps, entry.locator, root=self.root
        )
        return proposed_spec(recorded, entry.locator, self._options, videos)

    def entries(self) -> Sequence[EpisodeEntry]:
        """The one episode."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the metadata."""
        return self._bad_metadata

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read the episode.

        Raises:
            EpisodeError: there are no actions, or nothing can be kept.
        """
        recorded = self._describe(entry.locator)
        videos = read_whole_videos(
            self._videos(), recorded.num_steps, entry.locator, root=self.root
        )
        return read_recorded(
            recorded,
            entry,
            format_name=self.format,
            reader="hdf5",
            source=printable(self._path.name),
            dataset=self.dataset,
            options=self._options,
            videos=videos,
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        uuid = self._metadata.get("uuid")
        locator = uuid if isinstance(uuid, str) and uuid else "/".join(self._path.parts[-2:])
        files = [self.root / _TRAJECTORY, *self._videos().values()]
        return [EpisodeEntry.of(self, printable(locator), [file_fingerprint(f) for f in files])]

    def _videos(self) -> dict[str, Path]:
        """Camera -> file: stereo pairs by name, and others by their serial number."""
        folder = self.root / "recordings" / "MP4"
        found = sorted(folder.glob("*.mp4")) if folder.is_dir() else []
        return {f"camera_{path.stem}": path for path in found}

    def _describe(self, locator: str) -> Recorded:
        where = f"{printable(self._path.name)}/{_TRAJECTORY}:"
        num_steps = next((n for name in _STEPS if (n := self._rows(name))), 0)
        if num_steps == 0:
            raise EpisodeError(
                f"{self.root / _TRAJECTORY}: no action with a row per step",
                reason="no-action",
                stream="action",
            )
        broken: list[str] = []
        streams = [
            Stream(
                path=path,
                where=f"{where}/{path}",
                rows=Hdf5Rows(dataset, f"{where}/{path}"),
                name=_name(path),
                role=_role(path),
            )
            for path, dataset in datasets_below(self._file, broken)
        ]
        findings = broken_streams(broken, where, locator)
        success = _outcome(self._path)
        return Recorded(
            streams=distinct_names(streams),
            num_steps=num_steps,
            fps=self._options.fps or _FPS,
            stamps=self._stamps(num_steps, where),
            stamp_ns=1_000_000,
            files=(_TRAJECTORY,),
            conventions=_CONVENTIONS,
            findings=tuple(findings),
            labels={
                "embodiment": "franka",
                "task": _text(self._metadata.get("current_task")),
                "instruction": self._instruction(locator),
                "success": success if success is not None else _flag(self._metadata.get("success")),
            },
        )

    def _rows(self, path: str) -> int:
        node: Any = self._file
        for part in path.split("/"):
            node = child(node, part)
        return num_rows(node)

    def _stamps(self, num_steps: int, where: str) -> NDArray[Any] | None:
        """Begin of each step in milliseconds, where the control loop wrote it."""
        node: Any = self._file
        for part in _STAMPS.split("/"):
            node = child(node, part)
        if num_rows(node) != num_steps:
            return None
        try:
            return np.asarray(read_rows(node, 0, num_steps, f"{where}/{_STAMPS}"))
        except EpisodeError:
            return None  # told of when it is read as a stream

    def _instruction(self, locator: str) -> str | None:
        """The first of the annotators' instructions."""
        for folder in (self._path, *self._path.parents[:6]):
            for path in sorted(folder.glob(_ANNOTATIONS)):
                about = _read_json(path).get(locator)
                if isinstance(about, dict):
                    texts = [text for _, text in sorted(about.items()) if _text(text)]
                    if texts:
                        return _text(texts[0])
        return _text(self._metadata.get("language_instruction"))


def _metadata(root: Path) -> tuple[Mapping[str, Any], list[Finding]]:
    files = sorted(root.glob("metadata_*.json"))
    if not files:
        detail = "no metadata_*.json: task and uuid are not known"
    else:
        about = _read_json(files[0])
        if about:
            return about, []
        detail = "is no JSON object: task and uuid are not known"
    name = files[0].name if files else "metadata_*.json"
    finding = Finding(severity="warning", reason="bad-metadata", where=name, detail=detail)
    return {}, [finding]


def _read_json(path: Path) -> Mapping[str, Any]:
    """The object of a file, empty where it holds none."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_MOST_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _name(path: str) -> str:
    if path.startswith("observation/robot_state/"):
        return canonical_name(path.removeprefix("observation/robot_state/"))
    return canonical_name(path.replace("/", "_"))


def _role(path: str) -> Role:
    if path in _ACTIONS:
        return "action"
    return "state" if path in _STATES else "other"


def _outcome(path: Path) -> bool | None:
    return next((_OUTCOMES[part] for part in reversed(path.parts) if part in _OUTCOMES), None)


def _lab(path: Path) -> str | None:
    parts = path.parts
    where = [number for number, part in enumerate(parts) if part in _OUTCOMES]
    return parts[where[-1] - 1] if where and where[-1] > 1 else None


def _text(value: object) -> str | None:
    return printable(value.strip()) if isinstance(value, str) and value.strip() else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def recognises(path: Path) -> bool:
    """True for a folder with `trajectory.h5`."""
    return (path / _TRAJECTORY).is_file()


FORMAT: Final = Format(
    name="hdf5-droid",
    looks_for="a folder with trajectory.h5 and recordings/MP4 (DROID raw)",
    recognises=recognises,
    open=DroidSource,
    needs=("h5py",),
    extra="hdf5",
)
