"""From streams with clocks of their own to steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.grid import grid_times
from ingest.alignment.notes import Notes
from ingest.alignment.ordered import OrderedStream, distinct_streams, order_stream, timing_of
from ingest.alignment.policy import AlignmentPolicy
from ingest.alignment.steps import Steps, place, tell_ages
from ingest.alignment.timing import StreamTiming, percentile_ns
from ingest.errors import EpisodeError
from ingest.source import Finding
from ingest.timed import TimedCamera, TimedValues
from lake.episode import CameraVideo
from lake.spec import CameraSpec, FeatureSpec

_NS = 1e9


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """An episode on its grid.

    Attributes:
        timestamps_ns: int64 [T], the steps.
        fps: steps per second: the policy's rate, else that of the median distance of steps; None
            for a single step.
        features: name -> [T, *shape]; NaN, 0 or "" where not valid.
        feature_specs: of all streams of values, those that were left out too.
        valid: name -> bool [T], of features that some step lacks.
        cameras: name -> packets with the frame of each step.
        camera_specs: of all cameras, those that were left out too.
        ages_ns: name of a feature or camera -> int64 [T], step less stamp of its sample, negative
            where that is of the future, NO_SAMPLE_NS where there is none. Of an action with a lag:
            as at the later step that it is of.
        timing: of every stream that has the clock, those that were left out too.
        findings: what was met.
    """

    timestamps_ns: NDArray[np.int64]
    fps: float | None
    features: Mapping[str, NDArray[Any]]
    feature_specs: tuple[FeatureSpec, ...]
    valid: Mapping[str, NDArray[np.bool_]]
    cameras: Mapping[str, CameraVideo]
    camera_specs: tuple[CameraSpec, ...]
    ages_ns: Mapping[str, NDArray[np.int64]]
    timing: tuple[StreamTiming, ...]
    findings: tuple[Finding, ...]


def align(
    values: Sequence[TimedValues],
    cameras: Sequence[TimedCamera],
    policy: AlignmentPolicy,
    *,
    where: str,
    locator: str,
) -> Aligned:
    """Bring streams onto one grid.

    A stream that cannot be is left out with an `error` finding; nothing is filled: steps without a
    sample are invalid.

    Args:
        values: numbers and texts.
        cameras: pictures, at or before each step unless their policy says `nearest`.
        policy: how.
        where: the recording, for findings.
        locator: the episode, for findings.

    Raises:
        EpisodeError: no grid (no stream is left, or none of the one that gives it in the time
            that all cover), or all steps are dropped.
    """
    notes = Notes(where=where, locator=locator)
    streams = distinct_streams([*cameras, *values], notes)
    timings, ordered = [], []
    for stream in streams:
        try:
            timings.append(timing_of(stream, policy))
            ordered.append(order_stream(stream, timings[-1], policy, notes))
        except EpisodeError as error:
            notes.lost(stream.name, error)
    _tell_unused_policies(policy, {stream.name for stream in streams}, notes)
    grid = grid_times(ordered, policy, notes)
    placed = [(each, place(each, grid, policy.action_lag_steps)) for each in ordered]
    kept = _kept_steps(placed, notes)
    times = grid[kept]
    features: dict[str, NDArray[Any]] = {}
    valid: dict[str, NDArray[np.bool_]] = {}
    videos: dict[str, CameraVideo] = {}
    ages: dict[str, NDArray[np.int64]] = {}
    for each, all_steps in placed:
        steps = all_steps.at(kept)
        tell_ages(each, steps, notes)
        if not steps.valid.any():
            continue
        ages[each.name] = steps.age_ns
        if isinstance(each.stream, TimedCamera):
            video = each.stream.video
            index = replace(video.index, step_to_frame=steps.values)
            videos[each.name] = CameraVideo(index=index, payload=video.payload)
            continue
        features[each.name] = steps.values
        if not steps.valid.all():
            valid[each.name] = steps.valid
    return Aligned(
        timestamps_ns=times,
        fps=policy.grid_fps or _median_rate(times),
        features=features,
        feature_specs=tuple(each.spec for each in streams if isinstance(each, TimedValues)),
        valid=valid,
        cameras=videos,
        camera_specs=tuple(each.spec for each in streams if isinstance(each, TimedCamera)),
        ages_ns=ages,
        timing=tuple(timings),
        findings=tuple(notes.findings),
    )


def _tell_unused_policies(policy: AlignmentPolicy, names: set[str], notes: Notes) -> None:
    for name in sorted(policy.streams.keys() - names):
        detail = f"the policy names it; there are {', '.join(sorted(names)) or 'no streams'}"
        notes.add("warning", "no-such-stream", name, detail)


def _kept_steps(placed: Sequence[tuple[OrderedStream, Steps]], notes: Notes) -> NDArray[np.bool_]:
    """The steps, bool [T], at which every stream with the method `drop` has a sample."""
    kept = np.ones(len(placed[0][1].valid), np.bool_)
    for each, steps in placed:
        if each.method != "drop":
            continue
        if dropped := int((~steps.valid).sum()):
            detail = f"{dropped} of {len(kept)} steps have no sample of it and are dropped"
            notes.add("warning", "dropped-steps", each.name, detail)
        kept &= steps.valid
        if not kept.any():
            raise EpisodeError(
                f"{each.name}: no step that is left has a sample of it, so that all are dropped",
                reason="nothing-left",
                stream=each.name,
            )
    return kept


def _median_rate(times: NDArray[np.int64]) -> float | None:
    return _NS / percentile_ns(np.sort(np.diff(times)), 50) if len(times) > 1 else None
