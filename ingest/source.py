"""What a recording format must offer to be ingested.

A format is one module (or package) with a class that satisfies `Source`, and a `Format` entry in
`ingest/formats.py`, which asks each in turn whether it recognises a path by its *content*.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, Protocol, Self

import xxhash

from ingest.alignment.policy import AlignmentPolicy
from ingest.episode_cuts import EpisodeCuts
from ingest.errors import EpisodeError, IngestError, SourceError
from lake.episode import Episode
from lake.spec import Spec

_BLOCK_BYTES: Final = 64 << 10
_BLOCKS: Final = 64
_RATES_HZ: Final = (1e-3, 1e6)


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

    @classmethod
    def refused(cls, locator: str, error: EpisodeError) -> Self:
        """What is told of an episode that cannot be read."""
        return cls(
            severity="error",
            reason=error.reason,
            where=locator,
            detail=str(error),
            episode=locator,
            stream=error.stream,
        )

    def __str__(self) -> str:
        """One line: severity, reason, place, sentence."""
        place = " ".join(part for part in (self.where, self.stream) if part)
        return f"{self.severity} {self.reason} [{place}]: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class EpisodeEntry:
    """An episode as listed, before it is read.

    Attributes:
        ingest_key: SHA-256 (hex) of format, dataset, locator and its files' fingerprints.
        episode_id: `<dataset>/<locator>-<first 12 hex digits of the ingest key>`.
        locator: the episode inside the source, e.g. `episode_000003`, `demo_10`.
        num_steps: steps as declared, or None where only reading tells.
    """

    ingest_key: str
    episode_id: str
    locator: str
    num_steps: int | None = None

    @classmethod
    def of(
        cls,
        source: "Source",
        locator: str,
        fingerprints: Sequence[str],
        num_steps: int | None = None,
    ) -> Self:
        """The entry of the episode at `locator`, in files with these `file_fingerprint`s."""
        text = "\0".join([source.format, source.dataset, locator, *fingerprints])
        key = hashlib.sha256(text.encode()).hexdigest()
        return cls(
            ingest_key=key,
            episode_id=f"{source.dataset}/{locator}-{key[:12]}",
            locator=locator,
            num_steps=num_steps,
        )


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
        alignment: how streams with clocks of their own become steps, in formats that have them.
        cuts: where logs of messages are cut into episodes.

    Raises:
        IngestError: a rate that is none.
    """

    dataset: str | None = None
    embodiment: str | None = None
    fps: float | None = None
    images: Literal["h264", "png"] = "h264"
    alignment: AlignmentPolicy = field(default_factory=AlignmentPolicy)
    cuts: EpisodeCuts = field(default_factory=EpisodeCuts)

    def __post_init__(self) -> None:
        if self.fps is not None and usable_rate(self.fps) is None:
            low, high = _RATES_HZ
            raise IngestError(f"a rate of {self.fps:g} steps/s: give one of {low:g} to {high:g}")


@dataclass(frozen=True, kw_only=True)
class Format:
    """A registered format.

    Attributes:
        name: short name (`lerobot`, `hdf5`, ...).
        looks_for: what `recognises` looks for, for the error that lists the known formats.
        recognises: True where the content of the path is of this format; MUST NOT raise on
            foreign, damaged or empty input.
        open: opens it; raises SourceError or MissingReaderError.
        needs: modules its reader imports beside the base install.
        extra: the extra of headrace that installs them, "" where there is none.
    """

    name: str
    looks_for: str
    recognises: Callable[[Path], bool]
    open: Callable[[Path, SourceOptions], Source]
    needs: tuple[str, ...] = ()
    extra: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of `needs` that are not installed."""
        return tuple(name for name in self.needs if find_spec(name) is None)


def first_spec(source: Source) -> Spec:
    """The spec of the first episode that can be read, for formats that only tell it by reading.

    Raises:
        SourceError: none can.
    """
    reason: EpisodeError | None = None
    for entry in source.entries():
        try:
            return source.read(entry).episode.spec
        except EpisodeError as error:
            reason = reason or error
    raise SourceError(f"{source.root}: no episode can be read: {reason}", reason="no-episode")


def file_fingerprint(path: Path) -> str:
    """Hex digest (XXH3-128) of a file's size and content, the same wherever it is copied to.

    All of a file of up to 4 MiB; of a larger one 64 blocks of 64 KiB, evenly spread from its
    first byte to its last. Modification times are left out: a copy has another one.
    """
    try:
        size = path.stat().st_size
        digest = xxhash.xxh3_128(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            if size <= _BLOCKS * _BLOCK_BYTES:
                digest.update(file.read())
            else:
                for block in range(_BLOCKS):
                    file.seek((size - _BLOCK_BYTES) * block // (_BLOCKS - 1))
                    digest.update(file.read(_BLOCK_BYTES))
    except OSError:
        return "unreadable"  # reading the episode tells which file and why
    return digest.hexdigest()


def usable_rate(value: object) -> float | None:
    """A stated rate in steps per second, None where it is no number or cannot be meant."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    low, high = _RATES_HZ
    return float(value) if low <= value <= high else None


def printable(name: str) -> str:
    r"""A name as text: bytes of file names and links that are not UTF-8 become `\udc..`."""
    return name.encode("utf-8", "backslashreplace").decode()
