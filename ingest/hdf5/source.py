"""What both HDF5 layouts share: from an episode's streams to an `Episode`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.hdf5.clock import step_times
from ingest.hdf5.streams import Stream, Streams, read_streams
from ingest.reader_name import reader_name
from ingest.source import EpisodeEntry, EpisodeReading, Finding, SourceOptions
from lake.episode import Episode, Provenance
from lake.spec import Spec

_MAX_STEPS: Final = 100_000_000  # 23 days at 50 Hz


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One episode of a file as its layout describes it, data not read yet.

    Attributes:
        streams: its datasets, named.
        num_steps: T, the number of actions.
        fps: rate in steps per second, or None.
        stamps: stored stamps in seconds [T], or None.
        files: files read.
        conventions: facts that the layout states about its values.
        findings: what the layout found.
        labels: fields of `Episode`: embodiment, task, instruction, success, split, tags.
    """

    streams: tuple[Stream, ...]
    num_steps: int
    fps: float | None
    files: tuple[str, ...]
    stamps: NDArray[Any] | None = None
    conventions: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)


def spec_of(streams: Streams, conventions: Mapping[str, str]) -> Spec:
    """The spec of what was read."""
    return Spec(
        features=tuple(streams.feature_specs),
        cameras=tuple(streams.camera_specs),
        conventions=conventions,
    )


def proposed_spec(recorded: Recorded, locator: str, options: SourceOptions) -> Spec:
    """Spec from the headers of the datasets alone."""
    streams = read_streams(
        recorded.streams,
        recorded.num_steps,
        locator=locator,
        fps=recorded.fps,
        options=options,
        headers_only=True,
    )
    return spec_of(streams, recorded.conventions)


def read_recorded(
    recorded: Recorded,
    entry: EpisodeEntry,
    *,
    format_name: str,
    source: str,
    dataset: str,
    options: SourceOptions,
) -> EpisodeReading:
    """Read an episode.

    Raises:
        EpisodeError: a number of steps that no recording has, or no stream that can be kept.
        SpecError: what was read does not make a valid episode.
    """
    if recorded.num_steps > _MAX_STEPS:
        raise EpisodeError(
            f"{recorded.files[0]}: {entry.locator}: {recorded.num_steps} steps are declared, more"
            f" than {_MAX_STEPS}; is the file damaged?",
            reason="too-many-steps",
            stream="action",
        )
    streams = read_streams(
        recorded.streams,
        recorded.num_steps,
        locator=entry.locator,
        fps=recorded.fps,
        options=options,
    )
    if not streams.features and not streams.cameras:
        raise EpisodeError(
            f"{recorded.files[0]}: {entry.locator}: no stream can be kept: "
            + "; ".join(f"{found.stream} {found.reason}" for found in streams.findings),
            reason="nothing-left",
        )
    times, bad_times = step_times(recorded.num_steps, recorded.fps, recorded.stamps, entry.locator)
    labels = dict(recorded.labels)
    if options.embodiment:
        labels["embodiment"] = options.embodiment
    episode = Episode(
        episode_id=entry.episode_id,
        ingest_key=entry.ingest_key,
        source=source,
        dataset=dataset,
        spec=spec_of(streams, recorded.conventions),
        fps=recorded.fps,
        timestamps_ns=times,
        features=streams.features,
        cameras=streams.cameras,
        provenance=Provenance(
            format=format_name,
            files=recorded.files,
            locator=entry.locator,
            reader=reader_name("hdf5"),
        ),
        **labels,
    )
    return EpisodeReading(
        episode=episode, findings=(*recorded.findings, *bad_times, *streams.findings)
    )
