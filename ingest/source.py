"""What a recording format must offer to be ingested.

A format is one module (or package) with a class that satisfies `Source`, and a `Format` entry in
`ingest/formats.py`, which asks each in turn whether it recognises a path by its *content*.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lake.episode import Episode
from lake.spec import Spec

_EDGE_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something a source says that is not true, or that a user should know before training.

    Attributes:
        severity: `error` = the named stream (or the whole episode) cannot be ingested, the rest
            can; `warning` = everything goes in, and `detail` says how the lie was met; `info` =
            worth knowing.
        reason: short stable code (`camera-without-files`, `wrong-count`, ...).
        where: the file or row at fault, relative to the source's root.
        detail: one sentence: what is declared, what is there, what is done about it.
        episode: locator of the episode concerned, "" where the whole source is.
        stream: the feature or camera concerned, "" where none is in particular.
    """

    severity: Literal["error", "warning", "info"]
    reason: str
    where: str
    detail: str
    episode: str = ""
    stream: str = ""

    def __str__(self) -> str:
        """One line: severity, reason, place, sentence."""
        place = " ".join(part for part in (self.where, self.stream) if part)
        return f"{self.severity} {self.reason} [{place}]: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class EpisodeEntry:
    """An episode as listed, before it is read.

    Attributes:
        ingest_key: stable key (see `ingest_key`).
        episode_id: `<dataset>/<locator>-<first 12 hex digits of the ingest key>`.
        locator: the episode inside the source, e.g. `episode_000003`, `demo_10`.
        num_steps: steps as declared, or None where only reading tells.
    """

    ingest_key: str
    episode_id: str
    locator: str
    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class EpisodeReading:
    """An episode and what was found wrong with it while it was read.

    Attributes:
        episode: the episode; a reader leaves `provenance.findings` empty, ingest fills it.
        findings: an `error` names a stream that had to be left out: ingest writes one quarantine
            row for each.
    """

    episode: Episode
    findings: tuple[Finding, ...] = ()


class Source(Protocol):
    """One recording (file or folder) of a known format, opened."""

    @property
    def format(self) -> str:
        """Name with version, e.g. `lerobot-v3.0`."""

    @property
    def root(self) -> Path:
        """File or folder that was opened."""

    @property
    def dataset(self) -> str:
        """Name of the dataset, by default the name of the root."""

    @property
    def spec(self) -> Spec:
        """The proposed spec: features, cameras, conventions."""

    def entries(self) -> Sequence[EpisodeEntry]:
        """All episodes in their natural order (`demo_2` before `demo_10`), nothing read yet."""

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the source as a whole, as far as known.

        Cheap before reading (no decoding); after the last episode it also holds what only
        reading could tell.
        """

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode; memory is bounded by that episode.

        Raises:
            EpisodeError: this episode cannot be read; others can.
        """

    def close(self) -> None:
        """Release files."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Choices a user makes at ingest.

    Attributes:
        dataset: name to use in place of the root's name.
        embodiment: robot type to use in place of the source's.
        fps: rate in steps per second for sources that store neither times nor a rate.
        images: how raw pictures are kept: `h264` encodes once (lossy, quality recorded), `png`
            keeps every bit.
    """

    dataset: str | None = None
    embodiment: str | None = None
    fps: float | None = None
    images: Literal["h264", "png"] = "h264"


@dataclass(frozen=True, kw_only=True)
class Format:
    """A registered format.

    Attributes:
        name: short name (`lerobot`, `hdf5`, ...).
        looks_for: what `recognises` looks for, for the error that lists the known formats.
        recognises: True where the content of the path is of this format; MUST NOT raise on
            foreign, damaged or empty input.
        open: opens it; raises SourceError or MissingReaderError.
    """

    name: str
    looks_for: str
    recognises: Callable[[Path], bool]
    open: Callable[[Path, SourceOptions], Source]


def file_fingerprint(path: Path) -> str:
    """Hex digest of a file's size and first and last 64 KiB.

    Cheap for files of any size, the same wherever a recording is copied to.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        digest.update(file.read(_EDGE_BYTES))
        if size > _EDGE_BYTES:
            file.seek(max(_EDGE_BYTES, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


def ingest_key(format_name: str, dataset: str, locator: str, fingerprints: Sequence[str]) -> str:
    """Key of an episode: SHA-256 (hex) of format, dataset, locator and its files' fingerprints."""
    text = "\0".join([format_name, dataset, locator, *fingerprints])
    return hashlib.sha256(text.encode()).hexdigest()
