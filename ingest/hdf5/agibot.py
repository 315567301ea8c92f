"""AgiBot World: tasks in JSON, signals in one HDF5 file per episode, a video per camera.

Layout from AgiBot World's documentation and any4lerobot's `agibot_utils`:
`task_info/task_<id>.json` lists the episodes, `proprio_stats/<task>/<episode>/proprio_stats.h5` has
`state/*`, `action/*` and `timestamp`, `observations/<task>/<episode>/videos/<camera>_color.mp4` the
pictures, at 30 Hz. Actions exist only at some steps: `action/<part>/index` says at which.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.recorded import Recorded, proposed_spec, read_recorded
from ingest.arrays.rows import Rows, count_rows
from ingest.arrays.scattered_rows import ScatteredRows
from ingest.arrays.streams import Stream, broken_streams, distinct_names
from ingest.errors import EpisodeError, SourceError
from ingest.hdf5.files import child, datasets_below, num_rows, open_file, read_rows
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
)
from ingest.whole_videos import WholeVideos, read_whole_videos
from lake.spec import Role, Spec, canonical_name

FORMAT_NAME: Final = "hdf5-agibot"
_FPS: Final = 30.0
_SIGNALS: Final = "proprio_stats.h5"
_MOST_JSON_BYTES: Final = 256 << 20
_STATE: Final = "state/joint/position"
_PARTS: Final = ("joint/position", "effector/position", "head/position", "waist/position")
_CONVENTIONS: Final = {
    "action_timing": "action[t] and state[t] were recorded together; a stretch where both are equal"
    " is normal",
    "quaternion_order": "end/orientation is xyzw",
}


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """An episode as a task's file lists it."""

    task: str
    episode: str
    about: Mapping[str, Any]

    @property
    def locator(self) -> str:
        return printable(f"task_{self.task}_episode_{self.episode}")


class AgibotSource:
    """A dataset with its folders `task_info`, `observations` and `proprio_stats`.

    Args:
        root: that holds them.
        options: the user's choices.

    Raises:
        SourceError: no task's file lists an episode.
    """

    format = FORMAT_NAME

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._listed: dict[str, _Listed] = {}
        self._findings: list[Finding] = []
        for path in sorted((root / "task_info").glob("*.json"), key=lambda p: natural_key(p.name)):
            self._list(path)
        if not self._listed:
            raise SourceError(f"{root}: no task in task_info lists an episode", reason="no-episode")

    @cached_property
    def dataset(self) -> str:
        """The user's name for the dataset, else the folder's."""
        return printable(self._options.dataset or self.root.resolve().name)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be read."""
        reason: Exception | None = None
        for locator, listed in self._listed.items():
            try:
                with open_file(self._signals(listed)) as file:
                    recorded = self._describe(file, listed)
                    videos = self._cameras(listed, recorded.num_steps)
                    return proposed_spec(recorded, locator, self._options, videos)
            except (EpisodeError, SourceError) as error:
                reason = reason or error
        raise SourceError(f"{self.root}: no episode can be read: {reason}", reason="no-episode")

    def entries(self) -> Sequence[EpisodeEntry]:
        """The listed episodes, by task and number."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """Task files that cannot be read, and recordings that no task lists."""
        return (*self._findings, *self._unlisted)

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: its signals are missing or damaged, or nothing can be kept.
        """
        listed = self._listed[entry.locator]
        try:
            with open_file(self._signals(listed)) as file:
                recorded = self._describe(file, listed)
                return read_recorded(
                    recorded,
                    entry,
                    format_name=self.format,
                    reader="hdf5",
                    source=printable(self.root.resolve().name),
                    dataset=self.dataset,
                    options=self._options,
                    videos=self._cameras(listed, recorded.num_steps),
                )
        except SourceError as error:
            raise EpisodeError(str(error), reason=error.reason) from error

    def close(self) -> None:
        """Nothing stays open between episodes."""

    def _list(self, path: Path) -> None:
        task = path.stem.removeprefix("task_")
        try:
            with path.open("rb") as file:
                rows = json.loads(file.read(_MOST_JSON_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            rows = error
        if not isinstance(rows, list):
            self._findings.append(
                Finding(
                    severity="error",
                    reason="bad-json",
                    where=printable(f"task_info/{path.name}"),
                    detail=f"is no list of episodes ({type(rows).__name__}): those of this task are"
                    " lost",
                )
            )
            return
        for row in rows:
            number = row.get("episode_id") if isinstance(row, dict) else None
            if isinstance(number, int | str):
                listed = _Listed(task=task, episode=str(number), about=row)
                self._listed[listed.locator] = listed

    @cached_property
    def _unlisted(self) -> list[Finding]:
        there = {
            (path.parent.parent.name, path.parent.name)
            for path in (self.root / "proprio_stats").glob(f"*/*/{_SIGNALS}")
        }
        listed = {(each.task, each.episode) for each in self._listed.values()}
        return [
            Finding(
                severity="warning",
                reason="unlisted-episode",
                where=printable(f"proprio_stats/{task}/{episode}"),
                detail="no task in task_info lists this recording; it is not read",
            )
            for task, episode in sorted(there - listed)
        ]

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        return [
            EpisodeEntry.of(
                self,
                locator,
                [
                    file_fingerprint(path)
                    for path in (self._signals(listed), *self._videos(listed).values())
                ],
            )
            for locator, listed in self._listed.items()
        ]

    def _signals(self, listed: _Listed) -> Path:
        return self.root / "proprio_stats" / listed.task / listed.episode / _SIGNALS

    def _videos(self, listed: _Listed) -> dict[str, Path]:
        folder = self.root / "observations" / listed.task / listed.episode / "videos"
        found = sorted(folder.glob("*.mp4")) if folder.is_dir() else []
        return {path.stem.removesuffix("_color"): path for path in found}

    def _cameras(self, listed: _Listed, num_steps: int) -> WholeVideos:
        return read_whole_videos(self._videos(listed), num_steps, listed.locator, root=self.root)

    def _describe(self, file: Any, listed: _Listed) -> Recorded:  # noqa: ANN401
        name = printable(self._signals(listed).relative_to(self.root).as_posix())
        num_steps = num_rows(_at(file, _STATE))
        if num_steps == 0:
            raise EpisodeError(
                f"{name}: no {_STATE} with a row per step", reason="no-state", stream="state"
            )
        stamps = _stamps(file, num_steps, name)
        broken: list[str] = []
        streams: list[Stream] = []
        findings: list[Finding] = []
        for path, dataset in datasets_below(file, broken):
            if path == "timestamp" or path.endswith("/index"):
                continue
            where = f"{name}:/{path}"
            if not num_rows(dataset):
                findings.append(_empty(where, path, listed.locator))
                continue
            try:
                rows = _rows(file, path, Hdf5Rows(dataset, where), num_steps)
            except EpisodeError as error:
                findings.append(_lost(error, where, path, listed.locator))
                continue
            streams.append(
                Stream(
                    path=path,
                    where=where,
                    rows=rows,
                    name=canonical_name(path.replace("/", "_")),
                    role=_role(path),
                )
            )
        return Recorded(
            streams=distinct_names(streams),
            num_steps=num_steps,
            fps=self._options.fps or _FPS,
            stamps=stamps,
            stamp_ns=1 if _are_ns(stamps) else 1_000_000_000,
            files=(name,),
            conventions=_CONVENTIONS,
            findings=(*findings, *broken_streams(broken, f"{name}:", listed.locator)),
            valid={
                stream.name: stream.rows.valid
                for stream in streams
                if isinstance(stream.rows, ScatteredRows)
            },
            labels={
                "embodiment": "agibot-g1",
                "task": _text(listed.about.get("task_name")),
                "instruction": _text(listed.about.get("task_name")),
            },
        )


def _at(file: Any, path: str) -> Any:  # noqa: ANN401  h5py ships no types
    node = file
    for part in path.split("/"):
        node = child(node, part)
    return node


def _rows(file: Any, path: str, rows: Hdf5Rows, num_steps: int) -> Rows:  # noqa: ANN401
    """The rows of a dataset, laid out over the steps where it is an action that lacks some."""
    index = _index(file, path) if path.startswith("action/") else None
    if index is not None and count_rows(rows) == len(index) < num_steps:
        return ScatteredRows(rows, index, num_steps, rows.where)
    return rows


def _index(file: Any, path: str) -> NDArray[np.int64] | None:  # noqa: ANN401
    """The steps of an action: its own index, or the joints' where its own is empty."""
    part = path.split("/")[1]
    for name in (f"action/{part}/index", "action/joint/index"):
        node = _at(file, name)
        if num_rows(node):
            values = np.asarray(read_rows(node, 0, num_rows(node), name))
            if values.ndim == 1 and values.dtype.kind in "iu":
                return values.astype(np.int64)
    return None


def _stamps(file: Any, num_steps: int, name: str) -> NDArray[Any] | None:  # noqa: ANN401
    node = child(file, "timestamp")
    if num_rows(node) != num_steps:
        return None
    try:
        return np.asarray(read_rows(node, 0, num_steps, f"{name}:/timestamp"))
    except EpisodeError:
        return None


def _are_ns(stamps: NDArray[Any] | None) -> bool:
    """Nanoseconds by the size of their numbers, else seconds."""
    return stamps is not None and stamps.dtype.kind in "iu" and int(stamps[0]) > 10**14


def _role(path: str) -> Role:
    kind, _, part = path.partition("/")
    if kind == "action" and part in _PARTS:
        return "action"
    return "state" if kind == "state" and part in _PARTS else "other"


def _text(value: object) -> str | None:
    return printable(value.strip()) if isinstance(value, str) and value.strip() else None


def _lost(error: EpisodeError, where: str, path: str, locator: str) -> Finding:
    return Finding(
        severity="error",
        reason=error.reason,
        where=where,
        detail=f"{error}; the episode goes in without it",
        episode=locator,
        stream=canonical_name(path.replace("/", "_")),
    )


def _empty(where: str, path: str, locator: str) -> Finding:
    return Finding(
        severity="info",
        reason="empty-stream",
        where=where,
        detail="holds no row, as in every episode that lacks this part; it is left out",
        episode=locator,
        stream=canonical_name(path.replace("/", "_")),
    )


def recognises(path: Path) -> bool:
    """True for a folder with `task_info/*.json` and `proprio_stats`."""
    try:
        return (path / "proprio_stats").is_dir() and any((path / "task_info").glob("*.json"))
    except OSError:
        return False


FORMAT: Final = Format(
    name="hdf5-agibot",
    looks_for="a folder with task_info, proprio_stats and observations (AgiBot World)",
    recognises=recognises,
    open=AgibotSource,
    needs=("h5py",),
    extra="hdf5",
)
