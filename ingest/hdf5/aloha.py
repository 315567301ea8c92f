"""ALOHA and ACT: one file per episode, `/observations/qpos`, `/observations/images`, `/action`.

Layout from ACT's `record_sim_episodes.py` and Mobile ALOHA's `record_episodes.py`. The files
store no times; both tools run at 50 Hz (DT = 0.02), which is used where neither an attribute `fps`
nor the user gives a rate, and is reported. JPEGs are written through OpenCV, from RGB or BGR
arrays depending on the tool, which no file records.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from ingest.arrays.recorded import Recorded, proposed_spec, read_recorded
from ingest.arrays.streams import Stream, broken_streams, distinct_names
from ingest.errors import EpisodeError, SourceError
from ingest.hdf5.files import (
    attribute_flag,
    attribute_number,
    attribute_text,
    child,
    datasets_below,
    is_dataset,
    is_hdf5_name,
    num_rows,
    open_file,
    read_rows,
)
from ingest.hdf5.rows import Hdf5Rows
from ingest.natural_order import natural_key
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    printable,
    usable_rate,
)
from lake.episode import Episode
from lake.spec import Role, Spec, canonical_name

FORMAT_NAME: Final = "hdf5-aloha"
_CONVENTION_FPS: Final = 50.0
_STAMPS: Final = ("timestamp", "timestamps", "observations/timestamp", "observations/timestamps")
_ROLES: Final[dict[str, Role]] = {
    "action": "action",
    "base_action": "action",
    "observations/qpos": "state",
    "reward": "reward",
    "rewards": "reward",
}
_NAMES: Final = {"observations/qpos": "state", "action": "action"}
_PICTURES: Final = ("observations/images", "observations/image", "observations/depth")
_NOT_PER_STEP: Final = ("compress_len",)
_CONVENTIONS: Final = {
    "action_timing": "action[t] was sent after observation[t]",
    "color_order": "as stored; JPEGs made by OpenCV from RGB arrays have red and blue exchanged",
}


class AlohaSource:
    """One ALOHA file, or a folder of them, each file an episode.

    Args:
        root: the file or folder.
        options: the user's choices.

    Raises:
        MissingReaderError: h5py is not installed.
        SourceError: the folder holds no HDF5 file.
    """

    format = FORMAT_NAME

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._files = [root] if root.is_file() else _hdf5_files(root)
        if not self._files:
            raise SourceError(f"{root}: no HDF5 file in it", reason="no-file")

    @cached_property
    def dataset(self) -> str:
        """The user's name for the dataset, else the folder's (of a single file, its stem)."""
        root = self.root.resolve()
        return printable(self._options.dataset or (root.stem if root.is_file() else root.name))

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first file that can be read."""
        reason: Exception | None = None
        for entry in self.entries():
            try:
                with open_file(self._by_locator[entry.locator]) as file:
                    recorded = self._describe(file, entry.locator)
                    return proposed_spec(recorded, entry.locator, self._options)
            except (SourceError, EpisodeError) as error:
                reason = reason or error
        raise SourceError(f"{self.root}: no file can be read: {reason}", reason="no-episode")

    def entries(self) -> Sequence[EpisodeEntry]:
        """The files in natural order of their names."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """Recordings in folders below, which are no episodes of this one."""
        if self.root.is_file():
            return ()
        below = sorted(path for path in self.root.glob("*/**/*") if is_hdf5_name(path))
        if not below:
            return ()
        return [
            Finding(
                severity="warning",
                reason="files-in-subfolders",
                where=printable(str(below[0].relative_to(self.root))),
                detail=f"{len(below)} HDF5 files in subfolders are not read; name the subfolders"
                " to ingest them",
            )
        ]

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one file.

        Raises:
            EpisodeError: damaged, or not of this layout.
        """
        path = self._by_locator[entry.locator]
        try:
            with open_file(path) as file:
                reading = read_recorded(
                    self._describe(file, entry.locator),
                    entry,
                    format_name=self.format,
                    reader="hdf5",
                    source=printable(self.root.resolve().name),
                    dataset=self.dataset,
                    options=self._options,
                )
                found = _check_padding(file, reading.episode)
                return replace(reading, findings=(*reading.findings, *found))
        except SourceError as error:
            raise EpisodeError(str(error), reason=error.reason) from error

    def close(self) -> None:
        """Nothing stays open between episodes."""

    @cached_property
    def _by_locator(self) -> dict[str, Path]:
        """The files by their stems; by their whole names where two share a stem."""
        stems = Counter(path.stem for path in self._files)
        return {
            printable(path.stem if stems[path.stem] == 1 else path.name): path
            for path in self._files
        }

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        return [
            EpisodeEntry.of(self, locator, [file_fingerprint(path)])
            for locator, path in self._by_locator.items()
        ]

    def _describe(self, file: Any, locator: str) -> Recorded:  # noqa: ANN401  h5py ships no types
        path = self._by_locator[locator]
        file_name = printable(path.name)
        num_steps = num_rows(child(file, "action"))
        if num_steps == 0:
            raise EpisodeError(
                f"{path}: no dataset /action with a row per step",
                reason="no-action",
                stream="action",
            )
        fps, findings = self._rate(file, locator)
        stamps = None
        streams = []
        broken: list[str] = []
        for name, dataset in datasets_below(file, broken):
            if name in _NOT_PER_STEP:
                continue
            where = f"{file_name}:/{name}"
            if name in _STAMPS and dataset.shape == (num_steps,) and stamps is None:
                stamps = read_rows(dataset, 0, num_steps, where)
            streams.append(
                Stream(
                    path=name,
                    where=where,
                    rows=Hdf5Rows(dataset, where),
                    name=_NAMES.get(name) or canonical_name(name.rsplit("/", 1)[-1]),
                    role=_ROLES.get(name, "other"),
                    may_be_pictures=name.startswith(_PICTURES),
                )
            )
        return Recorded(
            streams=distinct_names(streams),
            num_steps=num_steps,
            fps=fps,
            stamps=stamps,
            files=(file_name,),
            conventions=_CONVENTIONS,
            findings=(*findings, *broken_streams(broken, file_name + ":", locator)),
            labels={
                "embodiment": attribute_text(file.attrs, "embodiment", "robot_type", "robot")
                or "aloha",
                "task": attribute_text(file.attrs, "task", "task_name"),
                "instruction": attribute_text(
                    file.attrs, "instruction", "language_instruction", "language"
                ),
                "success": attribute_flag(file.attrs, "success"),
                "tags": ("sim",) if attribute_flag(file.attrs, "sim") else (),
            },
        )

    def _rate(self, file: Any, locator: str) -> tuple[float, list[Finding]]:  # noqa: ANN401
        stated = attribute_number(file.attrs, "fps", "control_hz", "hz")
        fps = self._options.fps or usable_rate(stated)
        if fps:
            return fps, []
        finding = Finding(
            severity="info",
            reason="rate-by-convention",
            where=locator,
            detail=f"no usable rate is stored; ALOHA's {_CONVENTION_FPS:g} Hz is used, --fps sets"
            " another",
            episode=locator,
            stream="timestamps",
        )
        return _CONVENTION_FPS, [finding]


def _check_padding(file: Any, episode: Episode) -> list[Finding]:  # noqa: ANN401
    """Compare `compress_len` with the true lengths of the padded pictures.

    Its rows follow `camera_names`, an order that no file stores, so a camera is right when any row
    agrees with it.

    Raises:
        EpisodeError: `compress_len` cannot be read.
    """
    declared = child(file, "compress_len")
    if not is_dataset(declared) or not declared.shape or len(declared.shape) != 2:
        return []
    rows = read_rows(declared, 0, len(declared), f"{episode.provenance.files[0]}:/compress_len")
    found = []
    for camera in episode.spec.cameras:
        video, stored = episode.cameras.get(camera.name), child(file, camera.source_name)
        if video is None or len(stored.shape) != 2:
            continue
        if not any(np.array_equal(row, video.index.packet_size) for row in rows):
            found.append(
                Finding(
                    severity="warning",
                    reason="wrong-compress-len",
                    where=f"{episode.provenance.files[0]}:/{camera.source_name}",
                    detail="no row of /compress_len gives the lengths of these pictures; the"
                    " pictures' own ends are used",
                    episode=episode.provenance.locator,
                    stream=camera.name,
                )
            )
    return found


def _hdf5_files(folder: Path) -> list[Path]:
    files = [path for path in folder.iterdir() if is_hdf5_name(path)]
    return sorted(files, key=lambda path: natural_key(path.name))


def _is_aloha_file(path: Path) -> bool | None:
    """Whether a file has `/action` and `/observations`; None where it cannot be opened."""
    try:
        with open_file(path) as file:
            return is_dataset(child(file, "action")) and child(file, "observations") is not None
    except SourceError:
        return None


def recognises(path: Path) -> bool:
    """True for an ALOHA file, or a folder whose readable HDF5 files all are ALOHA files.

    Raises:
        MissingReaderError: h5py is not installed.
    """
    try:
        if path.is_file():
            return is_hdf5_name(path) and _is_aloha_file(path) is True
        if not path.is_dir():
            return False
        answers = {_is_aloha_file(file) for file in _hdf5_files(path)}
    except OSError:
        return False
    return answers - {None} == {True}


FORMAT: Final = Format(
    name="hdf5-aloha",
    looks_for="an HDF5 file (or folder of them) with /action and /observations (ALOHA, ACT)",
    recognises=recognises,
    open=AlohaSource,
    needs=("h5py",),
    extra="hdf5",
)
