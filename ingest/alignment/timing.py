"""How regularly a stream came, and how its clocks run against each other."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.timed import Clocks

_NS = 1e9
RESET_NS = 1_000_000_000
"""A clock that jumps back by more was set anew: what lies before and after cannot be ordered."""


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """A clock against the recorder's.

    Attributes:
        clock: its name.
        offset_ns: median of its stamps less those of `log`.
        drift_ppm: by how much it runs faster, in millionths (Theil and Sen's median slope over 64
            pairs); 0 for fewer than 8 samples.
    """

    clock: str
    offset_ns: int
    drift_ppm: float


@dataclass(frozen=True, kw_only=True)
class StreamTiming:
    """Stamps of a stream on one clock, in order of arrival.

    Attributes:
        stream: its name.
        clock: whose stamps.
        count: samples.
        rate_hz: samples over the time they cover, None for one sample.
        period_ns: median distance of stamps that differ, 0 where none do.
        p95_gap_ns, max_gap_ns: distances of stamps in ascending order.
        duplicates: stamps that another sample has too, beyond its first.
        backward: samples whose stamp is less than that of the one before.
        reset_at: number of the first sample before which the clock jumped back by more than a
            second, None where it never did.
        offsets: of its other clocks, where it has `log`.
    """

    stream: str
    clock: str
    count: int
    rate_hz: float | None
    period_ns: int
    p95_gap_ns: int
    max_gap_ns: int
    duplicates: int
    backward: int
    reset_at: int | None
    offsets: tuple[ClockOffset, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def stream_timing(stream: str, clocks: Clocks, clock: str) -> StreamTiming:
    """Look at the stamps of a stream."""
    stamps = clocks[clock]
    steps = np.diff(stamps)
    gaps = np.diff(np.sort(stamps))
    moves = gaps[gaps > 0]
    covered = int(stamps.max() - stamps.min())
    resets = np.flatnonzero(steps < -RESET_NS)
    return StreamTiming(
        stream=stream,
        clock=clock,
        count=len(stamps),
        rate_hz=(len(stamps) - 1) * _NS / covered if covered else None,
        period_ns=int(np.median(moves)) if len(moves) else 0,
        p95_gap_ns=int(np.percentile(gaps, 95)) if len(gaps) else 0,
        max_gap_ns=int(gaps.max(initial=0)),
        duplicates=int((gaps == 0).sum()),
        backward=int((steps < 0).sum()),
        reset_at=int(resets[0]) + 1 if len(resets) else None,
        offsets=tuple(
            _offset(name, clocks["log"], other)
            for name, other in clocks.items()
            if name != "log" and "log" in clocks
        ),
    )


def _offset(clock: str, log: NDArray[np.int64], other: NDArray[np.int64]) -> ClockOffset:
    difference = other - log
    return ClockOffset(
        clock=clock, offset_ns=int(np.median(difference)), drift_ppm=_drift(log, difference)
    )


def _drift(log: NDArray[np.int64], difference: NDArray[np.int64]) -> float:
    """Median slope between pairs of samples half the stream apart."""
    half = len(log) // 2
    if half < 4:
        return 0.0
    first = np.unique(np.linspace(0, half - 1, min(64, half)).astype(np.int64))
    run = (log[first + half] - log[first]).astype(np.float64)
    rise = (difference[first + half] - difference[first]).astype(np.float64)
    slopes = rise[run > 0] / run[run > 0]
    return float(np.median(slopes)) * 1e6 if len(slopes) else 0.0
