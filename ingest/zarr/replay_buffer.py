"""Replay buffers: all episodes behind each other in arrays, and an array of where each ends.

Layout of diffusion policy's `ReplayBuffer` (`data/<key>` with a row per step, `meta/episode_ends`
with cumulative ends, cited in docs/formats) and of UMI, which zips it and compresses pictures as
JPEG XL. Neither time nor rate is stored, and UMI stores no action: its trainer takes the next pose.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.recorded import Recorded, proposed_spec, read_recorded
from ingest.arrays.rows import Rows
from ingest.arrays.streams import Stream, distinct_names
from ingest.errors import EpisodeError, SourceError
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    printable,
)
from ingest.zarr.container import Container, is_replay_buffer
from ingest.zarr.hierarchy import Hierarchy
from ingest.zarr.rows import BytePictures, ChannelsLast, ZarrRows
from lake.spec import Role, Spec, canonical_name

FORMAT_NAME: Final = "zarr-replay-buffer"
_ROLES: Final[dict[str, Role]] = {"action": "action", "actions": "action", "reward": "reward"}
_STATES: Final = ("state", "agent_pos", "robot", "eef", "qpos", "joint", "gripper")
_NOT_STATE: Final = ("demo_start", "demo_end")
_PICTURES: Final = ("img", "image", "rgb", "camera")


class ReplayBufferSource:
    """One replay buffer, in a folder or a zip.

    Args:
        root: of it.
        options: the user's choices.

    Raises:
        MissingReaderError: zarr is not installed.
        SourceError: damaged, or `episode_ends` is no ascending list of ends.
    """

    format = FORMAT_NAME

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._container = Container(root)
        self._hierarchy = Hierarchy(self._container)
        name = self._container.episode_ends
        if name is None:
            raise SourceError(f"{root}: no array episode_ends", reason="no-episode-ends")
        self._ends = _episode_ends(self._hierarchy, name, root)
        inside = "data/" if "/" in name else ""
        self._names = [
            path
            for path in self._container.arrays()
            if path.startswith(inside) and path != name and "/" not in path[len(inside) :]
        ]
        if not self._names:
            raise SourceError(f"{root}: no array beside {name}", reason="no-data")

    @cached_property
    def dataset(self) -> str:
        """The user's name for the dataset, else the root's without its suffixes."""
        name = self.root.resolve().name
        for suffix in (".zip", ".zarr"):
            name = name.removesuffix(suffix)
        return printable(self._options.dataset or name)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be described."""
        reason: Exception | None = None
        for entry in self.entries():
            try:
                return proposed_spec(self._describe(entry), entry.locator, self._options)
            except EpisodeError as error:
                reason = reason or error
        raise SourceError(f"{self.root}: no episode can be read: {reason}", reason="no-episode")

    def entries(self) -> Sequence[EpisodeEntry]:
        """The episodes in their order."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """Rows behind the last episode, and arrays that are shorter than the episodes."""
        last = int(self._ends[-1]) if len(self._ends) else 0
        found = []
        for name in self._names:
            try:
                rows = self._hierarchy.array(name).shape[0]
            except (EpisodeError, IndexError):
                continue  # told with each episode
            if rows > last:
                detail = (
                    f"{rows - last} rows behind the last episode end, {last}, belong to no episode:"
                    " was the recorder stopped? They are not read"
                )
                found.append(
                    Finding(
                        severity="error",
                        reason="rows-without-episode",
                        where=name,
                        detail=detail,
                        stream=canonical_name(name),
                    )
                )
        return found

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: no array holds all of its rows.
        """
        return read_recorded(
            self._describe(entry),
            entry,
            format_name=self.format,
            reader="zarr",
            source=printable(self.root.resolve().name),
            dataset=self.dataset,
            options=self._options,
        )

    def close(self) -> None:
        """Close the zip."""
        self._hierarchy.close()

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        fingerprint = self._container.fingerprint()
        lengths = np.diff(self._ends, prepend=0).tolist()
        return [
            EpisodeEntry.of(self, f"episode_{number}", [fingerprint], steps)
            for number, steps in enumerate(lengths)
        ]

    def _describe(self, entry: EpisodeEntry) -> Recorded:
        number = int(entry.locator.rsplit("_", 1)[1])
        start, stop = (int(end) for end in np.append(0, self._ends)[number : number + 2])
        streams: list[Stream] = []
        findings: list[Finding] = []
        for name in self._names:
            where = f"{printable(self.root.name)}:{name}"
            try:
                stream, missing = self._stream(name, where, start, stop)
            except EpisodeError as error:
                findings.append(_lost(error, where, name, entry))
                continue
            streams.append(stream)
            if missing:
                findings.append(_not_stored(missing, where, name, entry))
        if not any(stream.role == "action" for stream in streams):
            findings.append(_no_action(self.root, entry))
        return Recorded(
            streams=distinct_names(streams),
            num_steps=stop - start,
            fps=self._options.fps,
            files=(printable(self.root.name),),
            findings=tuple(findings),
            labels={"embodiment": "unknown"},
        )

    def _stream(self, name: str, where: str, start: int, stop: int) -> tuple[Stream, int]:
        """An array's rows of an episode, and how many of their chunks are not stored.

        Raises:
            EpisodeError: it cannot be opened, has too few rows, or lacks chunks of pictures.
        """
        key = name.rsplit("/", 1)[-1]
        array = self._hierarchy.array(name)
        if not array.shape or array.shape[0] < stop:
            raise EpisodeError(
                f"{where}: {array.shape[0] if array.shape else 0} rows, the episode has rows"
                f" {start} to {stop}",
                reason="beyond-data",
                stream=canonical_name(key),
            )
        rows = ZarrRows(array, where, start, stop)
        pictures = _pictures(key, rows, where)
        missing = self._hierarchy.missing_chunks(name, start, stop)
        if missing and pictures is not None:
            raise EpisodeError(
                f"{where}: {missing} chunks of pictures were never written, and would read as one"
                " colour: was the recorder stopped half-way?",
                reason="partly-written",
                stream=canonical_name(key),
            )
        stream = Stream(
            path=name,
            where=where,
            rows=rows if pictures is None else pictures,
            name=canonical_name(key),
            role=_role(key),
            may_be_pictures=True,
        )
        return stream, missing


def _episode_ends(hierarchy: Hierarchy, name: str, root: Path) -> NDArray[np.int64]:
    try:
        array = hierarchy.array(name)
        ends = np.asarray(array[:])
    except Exception as error:
        raise SourceError(
            f"{root}: {name} cannot be read: {type(error).__name__}: {error}",
            reason="bad-episode-ends",
        ) from error
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise SourceError(
            f"{root}: {name} is {ends.dtype} {ends.shape}, not a list of whole numbers",
            reason="bad-episode-ends",
        )
    ends = ends.astype(np.int64)
    if (bad := np.flatnonzero(np.diff(ends, prepend=0) <= 0)).size:
        raise SourceError(
            f"{root}: {name}: episode {bad[0]} ends at row {ends[bad[0]]}, not behind the one"
            " before it: where its episodes lie is not known",
            reason="bad-episode-ends",
        )
    return ends


def _pictures(key: str, rows: ZarrRows, where: str) -> Rows | None:
    """The rows as pictures, None where they are none."""
    if len(rows.shape) != 4:
        is_depth = len(rows.shape) == 3 and rows.dtype == np.uint16
        return rows if is_depth else None
    is_named = any(word in key.lower() for word in _PICTURES)
    if rows.shape[3] == 3 and rows.dtype == np.uint8:
        return rows
    if rows.shape[3] == 3 and rows.dtype.kind == "f" and is_named:
        return BytePictures(rows, where)
    if rows.shape[1] == 3 and rows.dtype == np.uint8 and is_named:
        return ChannelsLast(rows)
    return None


def _role(key: str) -> Role:
    if key in _ROLES:
        return _ROLES[key]
    name = key.lower()
    is_state = any(word in name for word in _STATES) and not any(w in name for w in _NOT_STATE)
    return "state" if is_state else "other"


def _lost(error: EpisodeError, where: str, name: str, entry: EpisodeEntry) -> Finding:
    return Finding(
        severity="error",
        reason=error.reason,
        where=where,
        detail=f"{error}; the episode goes in without it",
        episode=entry.locator,
        stream=canonical_name(name.rsplit("/", 1)[-1]),
    )


def _not_stored(missing: int, where: str, name: str, entry: EpisodeEntry) -> Finding:
    return Finding(
        severity="warning",
        reason="chunks-not-stored",
        where=where,
        detail=f"{missing} of its chunks are not stored and read as the fill value: Zarr leaves out"
        " chunks that hold nothing else, and so does a recorder that was stopped",
        episode=entry.locator,
        stream=canonical_name(name.rsplit("/", 1)[-1]),
    )


def _no_action(root: Path, entry: EpisodeEntry) -> Finding:
    return Finding(
        severity="info",
        reason="no-action",
        where=printable(root.name),
        detail="no array is called action; UMI's trainer takes the next pose as the action",
        episode=entry.locator,
    )


def _open(path: Path, options: SourceOptions) -> ReplayBufferSource:
    return ReplayBufferSource(path, options)


FORMAT: Final = Format(
    name="zarr",
    looks_for="a Zarr folder or zip with meta/episode_ends (diffusion policy, UMI)",
    recognises=is_replay_buffer,
    open=_open,
    needs=("zarr", "numcodecs", "imagecodecs"),
    extra="zarr",
)
