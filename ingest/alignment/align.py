"""From streams with clocks of their own to steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.grid import Stamped, grid_times
from ingest.alignment.policy import AlignmentPolicy, StreamPolicy
from ingest.alignment.resample import Chosen, hold, in_order, linear, nearest
from ingest.alignment.timing import StreamTiming, stream_timing
from ingest.errors import EpisodeError
from ingest.source import Finding
from ingest.timed import TimedCamera, TimedValues
from lake.episode import CameraVideo
from lake.spec import CameraSpec, FeatureSpec

_Stream = TimedValues | TimedCamera


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """An episode on its grid.

    Attributes:
        timestamps_ns: int64 [T], the steps.
        fps: median rate of the grid in steps per second, None for a single step.
        features: name -> [T, *shape]; NaN, 0 or "" where not valid.
        feature_specs: of them.
        valid: name -> bool [T], of features that some step lacks.
        cameras: name -> packets with the frame of each step.
        camera_specs: of them.
        ages_ns: name -> int64 [T], step less stamp of its sample; -1 where it has none.
        timing: of every stream, those that were left out too.
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
        EpisodeError: no grid: no stream is left, or no time is covered by all of them.
    """
    work = _Alignment(policy=policy, where=where, locator=locator)
    streams: list[_Stream] = [*cameras, *values]
    usable = [stream for stream in streams if work.look_at(stream)]
    grid, _ = grid_times([work.stamped(stream) for stream in usable], policy)
    grid = work.without_dropped(usable, grid)
    for stream in usable:
        try:
            if isinstance(stream, TimedCamera):
                work.add_camera(stream, grid)
            else:
                work.add_values(stream, grid)
        except EpisodeError as error:
            detail = f"{error}; the episode goes in without it"
            work.note("error", error.reason, detail, stream.name)
    periods = np.diff(grid)
    return Aligned(
        timestamps_ns=grid,
        fps=1e9 / float(np.median(periods)) if len(periods) else None,
        features=work.features,
        feature_specs=tuple(work.feature_specs),
        valid=work.valid,
        cameras=work.cameras,
        camera_specs=tuple(work.camera_specs),
        ages_ns=work.ages,
        timing=tuple(work.timing.values()),
        findings=tuple(work.findings),
    )


@dataclass(kw_only=True)
class _Alignment:
    """What `align` gathers."""

    policy: AlignmentPolicy
    where: str
    locator: str
    features: dict[str, NDArray[Any]] = field(default_factory=dict)
    feature_specs: list[FeatureSpec] = field(default_factory=list)
    valid: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    cameras: dict[str, CameraVideo] = field(default_factory=dict)
    camera_specs: list[CameraSpec] = field(default_factory=list)
    ages: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    timing: dict[str, StreamTiming] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def note(
        self, severity: Literal["error", "warning", "info"], reason: str, detail: str, stream: str
    ) -> None:
        self.findings.append(
            Finding(
                severity=severity,
                reason=reason,
                where=self.where,
                detail=detail,
                episode=self.locator,
                stream=stream,
            )
        )

    def look_at(self, stream: _Stream) -> bool:
        """Look at a stream's stamps; whether it can be aligned."""
        name, clock = stream.name, self._clock(stream)
        if clock not in stream.clocks:
            there = ", ".join(stream.clocks)
            detail = f"has no clock {clock}, only {there}; the episode goes in without it"
            self.note("error", "no-clock", detail, name)
            return False
        timing = stream_timing(name, stream.clocks, clock)
        self.timing[name] = timing
        if timing.reset_at is not None:
            self.note(
                "error",
                "clock-reset",
                f"clock {clock} jumps back by more than a second before sample {timing.reset_at} of"
                f" {timing.count}: what is earlier is not known; the episode goes in without it, or"
                " with another of its clocks",
                name,
            )
            return False
        if timing.backward:
            self.note(
                "warning",
                "backward-stamps",
                f"{timing.backward} of {timing.count} samples are stamped before the one that came"
                " before them; they are taken in the order of their stamps",
                name,
            )
        if timing.duplicates:
            self.note(
                "warning",
                "repeated-stamps",
                f"{timing.duplicates} of {timing.count} samples have the stamp of another; the last"
                " that arrived counts",
                name,
            )
        return True

    def stamped(self, stream: _Stream) -> Stamped:
        """What of a stream the grid depends on."""
        if isinstance(stream, TimedCamera):
            rank = 0
        elif stream.is_text:
            rank = 3
        else:
            rank = 1 if stream.role == "action" else 2
        return Stamped(
            name=stream.name,
            stamps=np.sort(self._stamps(stream)),
            rank=rank,
            reach_ns=self._max_age(stream) or 0,
        )

    def without_dropped(
        self, streams: Sequence[_Stream], grid: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The steps that every stream with the method `drop` has a sample for."""
        for stream in streams:
            if self.policy.of(stream.name).method != "drop":
                continue
            stamps = np.sort(self._stamps(stream))
            kept = hold(stamps, grid, self._max_age(stream)).valid
            if not kept.any():
                raise EpisodeError(
                    f"{stream.name}: no step has a sample of it, so that all would be dropped",
                    reason="nothing-left",
                    stream=stream.name,
                )
            if dropped := int((~kept).sum()):
                detail = f"{dropped} of {len(grid)} steps have no sample of it and are dropped"
                self.note("warning", "dropped-steps", detail, stream.name)
            grid = grid[kept]
        return grid

    def add_camera(self, stream: TimedCamera, grid: NDArray[np.int64]) -> None:
        """Choose a frame for each step."""
        policy = self.policy.of(stream.name)
        if policy.method == "linear":
            raise EpisodeError("pictures cannot be mixed: hold or nearest", reason="bad-policy")
        order = in_order(self._stamps(stream))
        chosen = self._choose(policy, self._stamps(stream)[order], grid, self._max_age(stream))
        frames = stream.video.index.step_to_frame[order][chosen.sample]
        shown = np.where(chosen.valid, frames, np.int32(-1)).astype(np.int32)
        if not (shown >= 0).any():
            raise EpisodeError("no step has a picture", reason="no-picture", stream=stream.name)
        index = replace(stream.video.index, step_to_frame=shown)
        self.cameras[stream.name] = CameraVideo(index=index, payload=stream.video.payload)
        self.camera_specs.append(
            CameraSpec(
                name=stream.name,
                source_name=stream.source_name,
                height=index.height,
                width=index.width,
                is_depth=stream.is_depth,
            )
        )
        self._tell(stream.name, chosen.age_ns, shown >= 0)

    def add_values(self, stream: TimedValues, grid: NDArray[np.int64]) -> None:
        """Choose or mix a value for each step."""
        policy, max_age = self.policy.of(stream.name), self._max_age(stream)
        order = in_order(self._stamps(stream))
        stamps, values = self._stamps(stream)[order], stream.values[order]
        if policy.method == "linear":
            if not stream.may_be_interpolated:
                raise EpisodeError(
                    f"{values.dtype} that is no continuous number cannot be mixed: hold or nearest",
                    reason="bad-policy",
                )
            found, chosen = linear(values, stamps, grid, max_age, stream.quaternion)
        else:
            chosen = self._choose(policy, stamps, grid, max_age)
            found = values[chosen.sample]
        valid, age = chosen.valid, chosen.age_ns
        if stream.role == "action" and (lag := self.policy.action_lag_steps):
            found, valid, age = (_earlier(each, lag) for each in (found, valid, age))
        found = found.copy()
        found[~valid] = _nothing(stream)
        self.features[stream.name] = found
        self.feature_specs.append(
            FeatureSpec(
                name=stream.name,
                source_name=stream.source_name,
                dtype="string" if stream.is_text else values.dtype.name,
                shape=tuple(values.shape[1:]),
                names=stream.names,
                units=stream.units,
                role="language" if stream.is_text else stream.role,
            )
        )
        if not valid.all():
            self.valid[stream.name] = valid
        self._tell(stream.name, age, valid)

    def _choose(
        self,
        policy: StreamPolicy,
        stamps: NDArray[np.int64],
        grid: NDArray[np.int64],
        max_age: int | None,
    ) -> Chosen:
        return (nearest if policy.method == "nearest" else hold)(stamps, grid, max_age)

    def _clock(self, stream: _Stream) -> str:
        return self.policy.of(stream.name).clock or self.policy.clock

    def _stamps(self, stream: _Stream) -> NDArray[np.int64]:
        return stream.clocks[self._clock(stream)]

    def _max_age(self, stream: _Stream) -> int | None:
        given = self.policy.of(stream.name).max_age_ns
        timing = self.timing[stream.name]
        is_text = isinstance(stream, TimedValues) and stream.is_text
        if given is not None or is_text or not timing.period_ns:
            return given
        return timing.period_ns * 3 // 2

    def _tell(self, stream: str, age_ns: NDArray[np.int64], valid: NDArray[np.bool_]) -> None:
        self.ages[stream] = age_ns
        if missing := int((~valid).sum()):
            old = age_ns[~valid & (age_ns >= 0)]
            oldest = f", {int(old.max()) / 1e6:.1f} ms at most" if len(old) else ""
            self.note(
                "warning",
                "steps-without-sample",
                f"{missing} of {len(valid)} steps have no sample that is fresh enough{oldest},"
                f" first step {int(np.argmin(valid))}; they are marked, not filled",
                stream,
            )


def _earlier(values: NDArray[Any], lag: int) -> NDArray[Any]:
    """Row t + lag at t; False, -1 or what is there at the end, where there is none."""
    moved = np.roll(values, -lag, axis=0)
    if values.dtype == np.bool_:
        moved[-lag:] = False
    elif values.dtype == np.int64 and values.ndim == 1:
        moved[-lag:] = -1
    return moved


def _nothing(stream: TimedValues) -> object:
    if stream.is_text:
        return ""
    return np.nan if stream.values.dtype.kind == "f" else 0
