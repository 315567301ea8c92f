"""ALOHA and ACT: one file per episode, `/observations/qpos`, `/observations/images`, `/action`.

Layout from ACT's `record_sim_episodes.py` and Mobile ALOHA's `record_episodes.py`. The files
store no times; both tools run at 50 Hz (DT = 0.02), which is used where neither an attribute `fps`
nor the user gives a rate, and is reported. JPEGs are written through OpenCV, from RGB or BGR
arrays depending on the tool, which no file records.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from ingest.errors import EpisodeError, MissingReaderError, SourceError
from ingest.hdf5.files import (
    attribute_flag,
    attribute_number,
    attribute_text,
    child,
    datasets_below,
    is_dataset,
    is_hdf5_name,
    open_file,
    read_rows,
)
from ingest.hdf5.source import Recorded, proposed_spec, read_recorded
from ingest.hdf5.streams import Stream, distinct_names
from ingest.natural_order import natural_key
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    ingest_key,
)
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

    @property
    def dataset(self) -> str:
        """The user's name for the dataset, else the folder's (of a single file, its stem)."""
        root = self.root.resolve()
        return self._options.dataset or (root.stem if root.is_file() else root.name)

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
        """Nothing beyond what each episode tells."""
        return ()

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one file.

        Raises:
            EpisodeError: damaged, or not of this layout.
        """
        path = self._by_locator[entry.locator]
        try:
            with open_file(path) as file:
                return read_recorded(
                    self._describe(file, entry.locator),
                    entry,
                    format_name=self.format,
                    source=self.root.resolve().name,
                    dataset=self.dataset,
                    options=self._options,
                )
        except SourceError as error:
            raise EpisodeError(str(error), reason=error.reason) from error

    def close(self) -> None:
        """Nothing stays open between episodes."""

    @cached_property
    def _by_locator(self) -> dict[str, Path]:
        return {path.stem: path for path in self._files}

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        entries = []
        for locator, path in self._by_locator.items():
            key = ingest_key(self.format, self.dataset, locator, [file_fingerprint(path)])
            entries.append(
                EpisodeEntry(
                    ingest_key=key,
                    episode_id=f"{self.dataset}/{locator}-{key[:12]}",
                    locator=locator,
                )
            )
        return entries

    def _describe(self, file: Any, locator: str) -> Recorded:  # noqa: ANN401  h5py ships no types
        path = self._by_locator[locator]
        action = child(file, "action")
        if not is_dataset(action) or action.ndim == 0 or action.shape[0] == 0:
            raise EpisodeError(
                f"{path}: no dataset /action with a row per step",
                reason="no-action",
                stream="action",
            )
        fps, findings = self._rate(file, locator)
        stamps = None
        streams = []
        for name, dataset in datasets_below(file):
            if name in _NOT_PER_STEP:
                continue
            if name in _STAMPS and dataset.shape == action.shape[:1] and stamps is None:
                stamps = read_rows(dataset, 0, action.shape[0], f"{path.name}:/{name}")
            streams.append(
                Stream(
                    path=name,
                    where=f"{path.name}:/{name}",
                    dataset=dataset,
                    name=_NAMES.get(name) or canonical_name(name.rsplit("/", 1)[-1]),
                    role=_ROLES.get(name, "other"),
                    may_be_pictures=name.startswith(_PICTURES),
                )
            )
        findings += _check_padding(file, streams, locator)
        return Recorded(
            streams=distinct_names(streams),
            num_steps=int(action.shape[0]),
            fps=fps,
            stamps=stamps,
            files=(path.name,),
            conventions=_CONVENTIONS,
            findings=tuple(findings),
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
        fps = self._options.fps or attribute_number(file.attrs, "fps", "control_hz", "hz")
        if fps:
            return fps, []
        finding = Finding(
            severity="info",
            reason="rate-by-convention",
            where=locator,
            detail=f"no rate is stored; ALOHA's {_CONVENTION_FPS:g} Hz is used, --fps sets another",
            episode=locator,
            stream="timestamps",
        )
        return _CONVENTION_FPS, [finding]


def _check_padding(file: Any, streams: Sequence[Stream], locator: str) -> list[Finding]:  # noqa: ANN401
    """Compare `compress_len` with the true lengths of the padded pictures.

    Its rows follow `camera_names`, an order that no file stores, so a camera is right when any row
    agrees with it.
    """
    declared = child(file, "compress_len")
    if not is_dataset(declared) or declared.ndim != 2:
        return []
    rows = declared[:]
    found = []
    for stream in streams:
        data = stream.dataset
        if not stream.may_be_pictures or data.ndim != 2 or data.dtype != np.uint8:
            continue
        lengths = [len(data[t].tobytes().rstrip(b"\0")) for t in range(len(data))]
        if not any(np.array_equal(row, lengths) for row in rows):
            found.append(
                Finding(
                    severity="warning",
                    reason="wrong-compress-len",
                    where=stream.where,
                    detail="no row of /compress_len gives the lengths of these pictures; the"
                    " pictures' own ends are used",
                    episode=locator,
                    stream=stream.name,
                )
            )
    return found


def _hdf5_files(folder: Path) -> list[Path]:
    files = [path for path in folder.iterdir() if is_hdf5_name(path)]
    return sorted(files, key=lambda path: natural_key(path.name))


def _is_aloha_file(path: Path) -> bool:
    """True for a readable file with `/action` and `/observations`; raises only MissingReader."""
    try:
        with open_file(path) as file:
            return is_dataset(child(file, "action")) and child(file, "observations") is not None
    except SourceError:
        return False


def recognises(path: Path) -> bool:
    """True for an ALOHA file, or a folder whose readable HDF5 files all are ALOHA files."""
    try:
        if path.is_file():
            return is_hdf5_name(path) and _is_aloha_file(path)
        if not path.is_dir():
            return False
        readable = [file for file in _hdf5_files(path) if _opens(file)]
        return bool(readable) and all(_is_aloha_file(file) for file in readable)
    except MissingReaderError:
        raise
    except OSError:
        return False


def _opens(path: Path) -> bool:
    try:
        open_file(path).close()
    except SourceError:
        return False
    return True


FORMAT: Final = Format(
    name="hdf5-aloha",
    looks_for="an HDF5 file (or folder of them) with /action and /observations (ALOHA, ACT)",
    recognises=recognises,
    open=AlohaSource,
)
