"""Dexdata: `jsonl/episode_N.jsonl`, a JSON object per step.

Layout from Dexbotic's `docs/Data.md` and `dex_dataset.py` (github.com/Dexmal/dexbotic): `images_1`,
`images_2`, ... point at frames of a video or at picture files, `state` and, seldom, `action` are
lists of numbers, `prompt` is the instruction, `is_robot` is false for lines of chats. Neither time
nor rate is stored. Actions are usually made from the states when training.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.clock import step_times
from ingest.dexdata.cameras import read_camera
from ingest.dexdata.lines import Lines, first_object, place, read_lines
from ingest.errors import EpisodeError, SourceError
from ingest.natural_order import natural_key
from ingest.reader_name import reader_name
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    first_spec,
    printable,
)
from lake.episode import CameraVideo, Episode, Provenance
from lake.spec import CameraSpec, FeatureSpec, Role, Spec, canonical_name

_CAMERA: Final = re.compile(r"images_\d+")
_NUMBERS: Final[dict[str, Role]] = {"state": "state", "action": "action"}
_KNOWN: Final = {"state", "action", "prompt", "answer", "is_robot"}
_FOLDERS: Final = ("jsonl", "")


class DexdataSource:
    """A folder of episodes.

    Args:
        root: that holds them, or a folder `jsonl` with them.
        options: the user's choices.

    Raises:
        SourceError: no episode file in it.
    """

    format = "dexdata"

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        files = _episode_files(root)
        if not files:
            raise SourceError(f"{root}: no episode in it", reason="no-file")
        self._files = {printable(file.stem): file for file in files}

    @cached_property
    def dataset(self) -> str:
        """The user's name for the dataset, else the folder's."""
        return printable(self._options.dataset or self.root.resolve().name)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be read."""
        return first_spec(self)

    def entries(self) -> Sequence[EpisodeEntry]:
        """The files in natural order."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """Nothing is known of the folder as a whole."""
        return ()

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: no line can be read, it is a chat, or no stream can be kept.
        """
        path = self._files[entry.locator]
        lines = read_lines(path)
        if any(step.get("is_robot") is False for step in lines.steps):
            raise EpisodeError(f"{path}: lines of a chat, not of a robot", reason="not-a-robot")
        builder = _Builder(entry.locator, place(path, self.root), lines)
        builder.numbers()
        builder.texts()
        builder.cameras(self.root)
        if not builder.features and not builder.videos:
            raise EpisodeError(f"{path}: no stream can be kept", reason="nothing-left")
        fps = self._options.fps
        times, bad_times = step_times(len(lines.steps), fps, None, entry.locator)
        episode = Episode(
            episode_id=entry.episode_id,
            ingest_key=entry.ingest_key,
            source=printable(self.root.resolve().name),
            dataset=self.dataset,
            embodiment=self._options.embodiment or "unknown",
            spec=builder.spec,
            fps=fps,
            timestamps_ns=times,
            features=builder.features,
            cameras=builder.videos,
            instruction=builder.instruction,
            provenance=Provenance(
                format=self.format,
                files=tuple(builder.files),
                locator=entry.locator,
                reader=reader_name("dexdata"),
            ),
        )
        return EpisodeReading(episode=episode, findings=(*builder.findings, *bad_times))

    def close(self) -> None:
        """Nothing stays open between episodes."""

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        return [
            EpisodeEntry.of(self, locator, [file_fingerprint(path)])
            for locator, path in self._files.items()
        ]


class _Builder:
    """Turns the lines of an episode into streams; what cannot be kept is a finding."""

    def __init__(self, locator: str, where: str, lines: Lines) -> None:
        self.features: dict[str, NDArray[Any]] = {}
        self.videos: dict[str, CameraVideo] = {}
        self.files = [where]
        self.findings: list[Finding] = []
        self.instruction: str | None = None
        self._feature_specs: list[FeatureSpec] = []
        self._camera_specs: list[CameraSpec] = []
        self._locator, self._where, self._steps = locator, where, lines.steps
        if lines.damage:
            self._lose("cut-short", "", f"{lines.damage}: what follows it is lost")

    @property
    def spec(self) -> Spec:
        return Spec(
            features=tuple(self._feature_specs), cameras=tuple(self._camera_specs), conventions={}
        )

    def numbers(self) -> None:
        """`state`, `action` and other lists of numbers, in double precision as JSON has them."""
        for key in self._keys():
            if _CAMERA.fullmatch(key) or key in _KNOWN - set(_NUMBERS):
                continue
            try:
                values = _matrix([step.get(key) for step in self._steps])
            except ValueError as error:
                self._lose("not-numbers", key, f"{error}; the episode goes in without it")
                continue
            name = canonical_name(key)
            self.features[name] = values
            self._feature_specs.append(
                FeatureSpec(
                    name=name,
                    source_name=key,
                    dtype="float64",
                    shape=values.shape[1:],
                    role=_NUMBERS.get(key, "other"),
                )
            )

    def texts(self) -> None:
        """The prompt is the instruction; texts that change on the way are streams."""
        for key in ("prompt", "answer"):
            given = [step.get(key) for step in self._steps]
            if all(text is None for text in given):
                continue
            if any(not isinstance(text, str) for text in given):
                self._lose("not-text", key, "some steps have no text; the episode goes in without")
                continue
            if key == "prompt":
                self.instruction = given[0]
            if key == "answer" or len(set(given)) > 1:
                values = np.empty(len(given), object)
                values[:] = given
                self.features[key] = values
                self._feature_specs.append(
                    FeatureSpec(
                        name=key, source_name=key, dtype="string", shape=(), role="language"
                    )
                )

    def cameras(self, root: Path) -> None:
        """`images_1`, `images_2`, ..."""
        for key in filter(_CAMERA.fullmatch, self._keys()):
            try:
                video, files = read_camera(root, key, [step.get(key) for step in self._steps])
            except EpisodeError as error:
                self._lose(error.reason, key, f"{error}; the episode goes in without it")
                continue
            self.videos[key] = video
            self.files += files
            index = video.index
            self._camera_specs.append(
                CameraSpec(name=key, source_name=key, height=index.height, width=index.width)
            )

    def _keys(self) -> list[str]:
        found = dict.fromkeys(key for step in self._steps for key in step)
        return sorted(found, key=natural_key)

    def _lose(self, reason: str, stream: str, detail: str) -> None:
        self.findings.append(
            Finding(
                severity="error",
                reason=reason,
                where=self._where,
                detail=detail,
                episode=self._locator,
                stream=stream,
            )
        )


def _matrix(rows: Sequence[object]) -> NDArray[np.float64]:
    """Lists of numbers of one length as [T, D].

    Raises:
        ValueError: they are not; names the first step that differs.
    """
    size = len(rows[0]) if isinstance(rows[0], list) else -1
    for step, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != size or not size:
            raise ValueError(f"step {step} has {row!r:.60}, not a list of {max(size, 1)} numbers")
        if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in row):
            raise ValueError(f"step {step} has {row!r:.60}, not numbers alone")
    return np.array(rows, np.float64)


def _episode_files(root: Path) -> list[Path]:
    for name in _FOLDERS:
        folder = root / name
        if folder.is_dir():
            files = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
            if files:
                return sorted(files, key=lambda path: natural_key(path.name))
    return []


def _is_step(line: Mapping[str, Any] | None) -> bool:
    if line is None:
        return False
    has_camera = any(_CAMERA.fullmatch(key) for key in line)
    return has_camera and ("is_robot" in line or isinstance(line.get("state"), list))


def recognises(path: Path) -> bool:
    """True for a folder of JSON lines in which a step points at pictures."""
    try:
        return path.is_dir() and any(
            _is_step(first_object(file)) for file in _episode_files(path)[:8]
        )
    except OSError:
        return False


FORMAT: Final = Format(
    name="dexdata",
    looks_for="a folder of episode .jsonl files whose lines have images_1 and a state (Dexdata)",
    recognises=recognises,
    open=DexdataSource,
)
