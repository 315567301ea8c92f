"""How each stream is brought to the grid: chosen by the user, written into the episode."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self, get_args

from ingest.errors import IngestError
from ingest.timed import CLOCKS

Method = Literal["hold", "nearest", "linear", "drop"]
Span = Literal["overlap", "all"]
_MOST: Final = 1 << 62  # as of stamps


@dataclass(frozen=True, kw_only=True)
class StreamPolicy:
    """How one stream is brought to the grid.

    Attributes:
        method: `hold`: the newest sample at or before the step, which knows nothing of the future;
            `nearest`: the one nearest in time, before or after, of two as near the earlier;
            `linear`: between the samples around the step, along the arc for quaternions, for
            continuous floats alone; `drop`: as `hold`, and steps without a sample leave the grid.
        clock: whose stamps count, None for the episode's.
        max_age_ns: age from which a sample no longer stands for a step, for `nearest` and `linear`
            the distance; None for 1.5 times the stream's median period, and for no limit where a
            stream is text, or has one sample.

    Raises:
        IngestError: values that mean nothing.
    """

    method: Method = "hold"
    clock: str | None = None
    max_age_ns: int | None = None

    def __post_init__(self) -> None:
        _one_of("method", self.method, get_args(Method))
        if self.clock is not None:
            _one_of("clock", self.clock, CLOCKS)
        if self.max_age_ns is not None:
            _whole("max_age_ns", self.max_age_ns)


@dataclass(frozen=True, kw_only=True)
class AlignmentPolicy:
    """How an episode's streams become steps.

    Attributes:
        grid: name of the stream whose stamps are the steps; None for the camera with the most
            frames, without cameras the action with the most samples, else any stream with the most;
            of streams with more than one sample where there are such.
        grid_fps: steps at this rate instead, from the first step on.
        span: `overlap`: from the latest first sample of any stream to where the last sample of
            each is still fresh; `all`: from the earliest sample to the latest, invalid where a
            stream has nothing. Texts, single samples, and streams that cover less than half of
            the grid's stream do not count: one topic that fell silent does not end an episode.
        clock: whose stamps count: `log`, `publish`, `header` or `device`.
        action_lag_steps: action[t] is what step t + lag has; the last steps have none.
        default: of streams not in `streams`; where it is `linear`, what cannot be mixed is held.
        streams: name of a stream -> policy of its own.

    Raises:
        IngestError: values that mean nothing.
    """

    grid: str | None = None
    grid_fps: float | None = None
    span: Span = "overlap"
    clock: str = "log"
    action_lag_steps: int = 0
    default: StreamPolicy = field(default_factory=StreamPolicy)
    streams: Mapping[str, StreamPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.grid is not None and self.grid_fps is not None:
            raise IngestError("the grid is a stream's or a rate's: give one of grid and grid_fps")
        if self.grid_fps is not None and not 1e-3 <= self.grid_fps <= 1e6:
            raise IngestError(f"grid_fps={self.grid_fps:g}: steps per second, 0.001 to 1,000,000")
        _one_of("span", self.span, get_args(Span))
        _one_of("clock", self.clock, CLOCKS)
        _whole("action_lag_steps", self.action_lag_steps)

    def of(self, stream: str) -> StreamPolicy:
        """The policy of a stream."""
        return self.streams.get(stream, self.default)

    def clock_of(self, stream: str) -> str:
        """Whose stamps count for a stream."""
        return self.of(stream).clock or self.clock

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
            return cls(default=default, streams=streams, **raw)
        except (ValueError, TypeError, AttributeError) as error:
            raise IngestError(f"an alignment that cannot be read: {error}") from error


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise IngestError(f"{what} {value!r}: one of {', '.join(known)}")


def _whole(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise IngestError(f"{what}={value!r}: a whole number of 0 to 2^62")
