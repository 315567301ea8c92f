"""From an episode's streams to an `Episode`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.clock import step_times
from ingest.arrays.streams import Stream, Streams, read_streams
from ingest.errors import EpisodeError
from ingest.reader_name import reader_name
from ingest.source import EpisodeEntry, EpisodeReading, Finding, SourceOptions
from ingest.whole_videos import WholeVideos
from lake.episode import Episode, Provenance
from lake.spec import Spec

_MAX_STEPS: Final = 100_000_000  # 23 days at 50 Hz


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One episode of a recording as its layout describes it, data not read yet.

    Attributes:
        streams: its arrays, named.
        num_steps: T, the number of actions.
        fps: rate in steps per second, or None.
        stamps: stored stamps [T], or None.
        stamp_ns: what one of them counts, in nanoseconds.
        files: files read.
        conventions: facts that the layout states about its values.
        findings: what the layout found.
        valid: feature -> bool [T], False at steps that the recording has no row for.
        labels: fields of `Episode`: embodiment, task, instruction, success, split, tags.
    """

    streams: tuple[Stream, ...]
    num_steps: int
    fps: float | None
    files: tuple[str, ...]
    stamps: NDArray[Any] | None = None
    stamp_ns: int = 1_000_000_000
    conventions: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    valid: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)


def spec_of(
    streams: Streams, conventions: Mapping[str, str], videos: WholeVideos | None = None
) -> Spec:
    """The spec of what was read."""
    return Spec(
        features=tuple(streams.feature_specs),
        cameras=(*streams.camera_specs, *(videos.specs if videos else ())),
        conventions=conventions,
    )


def proposed_spec(
    recorded: Recorded,
    locator: str,
    options: SourceOptions,
    videos: WholeVideos | None = None,
) -> Spec:
    """Spec from the headers of the arrays, and the videos."""
    streams = read_streams(
        recorded.streams,
        recorded.num_steps,
        locator=locator,
        fps=recorded.fps,
        options=options,
        headers_only=True,
    )
    return spec_of(streams, recorded.conventions, videos)


def read_recorded(
    recorded: Recorded,
    entry: EpisodeEntry,
    *,
    format_name: str,
    reader: str,
    source: str,
    dataset: str,
    options: SourceOptions,
    videos: WholeVideos | None = None,
) -> EpisodeReading:
    """Read an episode.

    Args:
        recorded: what it is.
        entry: how it was listed.
        format_name: of the layout.
        reader: that provenance names.
        source: name of the recording.
        dataset: its name.
        options: the user's choices.
        videos: of its cameras, where they lie beside the arrays.

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
    cameras = {**streams.cameras, **(videos.cameras if videos else {})}
    if not streams.features and not cameras:
        raise EpisodeError(
            f"{recorded.files[0]}: {entry.locator}: no stream can be kept: "
            + "; ".join(f"{found.stream} {found.reason}" for found in streams.findings),
            reason="nothing-left",
        )
    times, bad_times = step_times(
        recorded.num_steps, recorded.fps, recorded.stamps, entry.locator, recorded.stamp_ns
    )
    labels = dict(recorded.labels)
    if options.embodiment:
        labels["embodiment"] = options.embodiment
    episode = Episode(
        episode_id=entry.episode_id,
        ingest_key=entry.ingest_key,
        source=source,
        dataset=dataset,
        spec=spec_of(streams, recorded.conventions, videos),
        fps=recorded.fps,
        timestamps_ns=times,
        features=streams.features,
        valid={name: steps for name, steps in recorded.valid.items() if name in streams.features},
        cameras=cameras,
        provenance=Provenance(
            format=format_name,
            files=(*recorded.files, *(videos.files if videos else ())),
            locator=entry.locator,
            reader=reader_name(reader),
        ),
        **labels,
    )
    return EpisodeReading(
        episode=episode,
        findings=(
            *recorded.findings,
            *bad_times,
            *streams.findings,
            *(videos.findings if videos else ()),
        ),
    )
