"""Rerun recordings as a source: a file, with an episode for each recording in it."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from ingest.errors import EpisodeError, SourceError
from ingest.rerun.entities import Entity, streams_of
from ingest.rerun.file import Extent, extent, is_old, version_of
from ingest.rerun.sdk import list_recordings, read_chunks
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
from ingest.timed import TimedCamera, TimedValues
from ingest.timed_episode import TimedRecording, episode_of
from lake.spec import Spec, canonical_name

_COPY_BYTES: Final = 16 << 20
_LABEL_FPS: Final = 30.0  # of the time base of encoded pictures, whose steps have their own times


class RerunSource:
    """One .rrd file.

    Args:
        root: the file.
        options: the user's choices.

    Raises:
        MissingReaderError: rerun-sdk is not installed.
        SourceError: of a layout that is no longer read, or without a whole message.
    """

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._version = version_of(root) or "?"
        if is_old(root):
            raise SourceError(
                f"{root}: written by Rerun {self._version}, whose layout is no longer read:"
                " `rerun rrd migrate` makes a new one of it",
                reason="old-rerun",
            )
        self._open = ExitStack()
        self._extent = extent(root)
        try:
            self._path = self._whole_file(self._extent)
            self._applications = list_recordings(self._path, root)
        except SourceError:
            self.close()
            raise

    @property
    def format(self) -> str:
        """With the version of Rerun that wrote it."""
        return f"rerun-{self._version}"

    @cached_property
    def dataset(self) -> str:
        """The user's name, else the application's."""
        applications = set(self._applications.values())
        own = applications.pop() if len(applications) == 1 else self.root.resolve().stem
        return printable(self._options.dataset or own)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first recording that can be read."""
        return first_spec(self)

    def entries(self) -> Sequence[EpisodeEntry]:
        """The recordings, by id."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """What is lost of a file that was cut short."""
        if not self._extent.is_cut:
            return ()
        lost = self._extent.size - self._extent.whole
        return (
            Finding(
                severity="error",
                reason="cut-short",
                where=printable(self.root.name),
                detail=f"its last {lost} bytes are no whole message; the {self._extent.messages}"
                " messages before them are read",
            ),
        )

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one recording.

        Raises:
            EpisodeError: its bytes cannot be read, or no stream of it has a clock.
        """
        entities = self._entities(entry)
        lost: list[Finding] = []
        values: list[TimedValues] = []
        cameras: list[TimedCamera] = []
        fps = self._options.fps or _LABEL_FPS
        for entity in entities.values():
            lost += _untold(entity, entry)
            try:
                for stream in streams_of(entity, fps=fps, images=self._options.images):
                    if isinstance(stream, TimedCamera):
                        cameras.append(stream)
                    else:
                        values.append(stream)
            except EpisodeError as error:
                detail = f"{error}; the episode goes in without it"
                lost.append(_finding(error.reason, entity.path, entry, "error", detail))
        return episode_of(
            TimedRecording(
                values=values,
                cameras=cameras,
                files=(printable(self.root.name),),
                conventions={
                    key: text
                    for entity in entities.values()
                    for key, text in entity.conventions.items()
                },
                findings=tuple(lost),
                labels={"task": printable(self._applications[entry.locator])},
            ),
            entry,
            format_name=self.format,
            reader="rerun",
            source=printable(self.root.resolve().name),
            dataset=self.dataset,
            options=self._options,
        )

    def close(self) -> None:
        """Remove the copy of a file that was cut short."""
        self._open.close()

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        fingerprint = file_fingerprint(self.root)
        return [
            EpisodeEntry.of(self, locator, [fingerprint]) for locator in sorted(self._applications)
        ]

    def _whole_file(self, found: Extent) -> Path:
        """The file, or a copy of its whole messages: the library refuses what was cut."""
        if not found.messages:
            raise SourceError(f"{self.root}: no whole message in it", reason="empty-file")
        if not found.is_cut:
            return self.root
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        copy = folder / "whole.rrd"
        with self.root.open("rb") as source, copy.open("wb") as target:
            left = found.whole
            while left:
                block = source.read(min(left, _COPY_BYTES))
                target.write(block)
                left -= len(block)
        return copy

    def _entities(self, entry: EpisodeEntry) -> dict[str, Entity]:
        entities: dict[str, Entity] = {}
        for path, is_static, batch in read_chunks(self._path, entry.locator, self.root):
            if not path.startswith("/__"):
                entity = entities.setdefault(printable(path), Entity(path=printable(path)))
                entity.add(batch, is_static=is_static)
        return entities


_STATIC: Final = "was logged without a time, so no step is known to show it; it is left out"


def _untold(entity: Entity, entry: EpisodeEntry) -> list[Finding]:
    """What of an entity becomes no stream."""
    found = []
    if entity.timeless:
        detail = f"{', '.join(entity.timeless)} {_STATIC}"
        found.append(_finding("static-entity", entity.path, entry, "warning", detail))
    if entity.unread:
        detail = f"{', '.join(sorted(entity.unread))}: no reader of these; they are left out"
        found.append(_finding("component-not-read", entity.path, entry, "warning", detail))
    if entity.unused_timelines:
        detail = f"timelines {', '.join(entity.unused_timelines)} are not kept"
        found.append(_finding("timeline-not-kept", entity.path, entry, "info", detail))
    return found


def _finding(
    reason: str,
    path: str,
    entry: EpisodeEntry,
    severity: Literal["error", "warning", "info"],
    detail: str,
) -> Finding:
    return Finding(
        severity=severity,
        reason=reason,
        where=path,
        detail=detail,
        episode=entry.locator,
        stream=canonical_name(path.strip("/")),
    )


def recognises(path: Path) -> bool:
    """True for a file that begins as .rrd files do."""
    return path.is_file() and version_of(path) is not None


FORMAT: Final = Format(
    name="rerun",
    looks_for="an .rrd file (Rerun)",
    recognises=recognises,
    open=RerunSource,
    needs=("rerun",),
    extra="rerun",
)
