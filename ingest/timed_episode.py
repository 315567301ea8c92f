"""From streams with clocks of their own to an `Episode`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.alignment.align import align
from ingest.reader_name import reader_name
from ingest.source import EpisodeEntry, EpisodeReading, Finding, SourceOptions
from ingest.timed import TimedCamera, TimedValues
from lake.episode import Episode, Provenance
from lake.spec import Spec


@dataclass(frozen=True, kw_only=True)
class TimedRecording:
    """What was read of an episode.

    Attributes:
        values: numbers and texts.
        cameras: pictures.
        files: files read.
        conventions: facts that the format states about its values.
        findings: what was met while reading.
        labels: fields of `Episode`: embodiment, task, instruction, success, split, tags.
    """

    values: Sequence[TimedValues]
    cameras: Sequence[TimedCamera]
    files: tuple[str, ...]
    conventions: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)


def episode_of(
    recording: TimedRecording,
    entry: EpisodeEntry,
    *,
    format_name: str,
    reader: str,
    source: str,
    dataset: str,
    options: SourceOptions,
) -> EpisodeReading:
    """Align a recording by the user's policy; a rate that they give is that of the steps.

    Args:
        recording: what was read.
        entry: how it was listed.
        format_name: of the recording.
        reader: that provenance names.
        source: name of the recording.
        dataset: its name.
        options: the user's choices.

    Raises:
        EpisodeError: no stream is left, or no time is covered by all of them.
    """
    policy = options.alignment
    if options.fps and policy.grid is None and policy.grid_fps is None:
        policy = replace(policy, grid_fps=options.fps)
    aligned = align(
        recording.values,
        recording.cameras,
        policy,
        where=recording.files[0],
        locator=entry.locator,
    )
    labels = {"embodiment": "unknown", **recording.labels}
    if options.embodiment:
        labels["embodiment"] = options.embodiment
    episode = Episode(
        episode_id=entry.episode_id,
        ingest_key=entry.ingest_key,
        source=source,
        dataset=dataset,
        spec=Spec(
            features=aligned.feature_specs,
            cameras=aligned.camera_specs,
            conventions=recording.conventions,
        ),
        fps=aligned.fps,
        timestamps_ns=aligned.timestamps_ns,
        features=aligned.features,
        valid=aligned.valid,
        cameras=aligned.cameras,
        provenance=Provenance(
            format=format_name,
            files=recording.files,
            locator=entry.locator,
            reader=reader_name(reader),
            alignment=policy.to_json(),
        ),
        **labels,
    )
    return EpisodeReading(episode=episode, findings=(*recording.findings, *aligned.findings))
