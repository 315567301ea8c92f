"""How each stream is brought to the grid: chosen by the user, written into the episode."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

from ingest.errors import IngestError

Method = Literal["hold", "nearest", "linear", "drop"]


@dataclass(frozen=True, kw_only=True)
class StreamPolicy:
    """How one stream is brought to the grid.

    Attributes:
        method: `hold`: the newest sample at or before the step, which knows nothing of the future;
            `nearest`: the one nearest in time, before or after; `linear`: between the samples
            around the step, along the arc for quaternions, for continuous numbers alone; `drop`:
            as `hold`, and steps without a sample leave the grid.
        clock: whose stamps count, None for the episode's.
        max_age_ns: age, or distance, from which a sample no longer stands for a step; None for
            1.5 times the stream's median period, and for no limit where a stream is text, or has
            one sample.
    """

    method: Method = "hold"
    clock: str | None = None
    max_age_ns: int | None = None

    def __post_init__(self) -> None:
        if self.max_age_ns is not None and self.max_age_ns < 0:
            raise IngestError(f"max_age_ns={self.max_age_ns}: nanoseconds, at least 0")


@dataclass(frozen=True, kw_only=True)
class AlignmentPolicy:
    """How an episode's streams become steps.

    Attributes:
        grid: name of the stream whose stamps are the steps; None for the camera with the most
            frames, without cameras the action with the most samples, else any stream with the most.
        grid_fps: steps at this rate instead, from the first step on.
        span: `overlap`: from the latest first sample of any stream to where the last sample of
            each is still fresh; `all`: from the earliest sample to the latest, invalid where a
            stream has nothing. Texts and single samples do not count.
        clock: whose stamps count: `log`, `publish`, `header` or `device`.
        action_lag_steps: action[t] is that of step t + lag; the last steps have none.
        default: of streams not in `streams`.
        streams: name of a stream -> policy of its own.

    Raises:
        IngestError: values that mean nothing.
    """

    grid: str | None = None
    grid_fps: float | None = None
    span: Literal["overlap", "all"] = "overlap"
    clock: str = "log"
    action_lag_steps: int = 0
    default: StreamPolicy = field(default_factory=StreamPolicy)
    streams: Mapping[str, StreamPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.grid is not None and self.grid_fps is not None:
            raise IngestError("the grid is a stream's or a rate's: give one of grid and grid_fps")
        if self.grid_fps is not None and not 1e-3 <= self.grid_fps <= 1e6:
            raise IngestError(f"grid_fps={self.grid_fps:g}: steps per second, 0.001 to 1,000,000")
        if self.action_lag_steps < 0:
            raise IngestError(f"action_lag_steps={self.action_lag_steps}: at least 0")

    def of(self, stream: str) -> StreamPolicy:
        """The policy of a stream."""
        return self.streams.get(stream, self.default)

    def to_json(self) -> str:
        """Canonical JSON, as an episode's provenance holds it."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`; what is missing takes its default.

        Raises:
            IngestError: no JSON object, an unknown name, or a value that means nothing.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            streams = {name: StreamPolicy(**each) for name, each in raw.pop("streams", {}).items()}
            default = StreamPolicy(**raw.pop("default", {}))
            policy = cls(default=default, streams=streams, **raw)
        except (ValueError, TypeError, AttributeError) as error:
            raise IngestError(f"an alignment that cannot be read: {error}") from error
        for name, each in {"default": policy.default, **policy.streams}.items():
            if each.method not in get_args(Method):
                raise IngestError(f"{name}: method {each.method!r}: {', '.join(get_args(Method))}")
        return policy
