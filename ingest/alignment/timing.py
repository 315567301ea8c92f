"""How regularly a stream came, and how its clocks run against each other."""

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.timed import Clocks

_NS: Final = 1e9
RESET_NS: Final = 1_000_000_000
"""A clock that jumps back by more was set anew: what lies before and after cannot be ordered."""
_FEWEST_FOR_DRIFT: Final = 8


@dataclass(frozen=True, kw_only=True)
class ClockTiming:
    """A clock of a stream against the recorder's.

    Attributes:
        clock: its name.
        offset_ns: median of its stamps less those of `log`.
        drift_ppm: by how much it runs faster, in millionths: the median slope over all pairs of
            samples half the stream apart (after Theil and Sen); None for fewer than 8 samples.
    """

    clock: str
    offset_ns: int
    drift_ppm: float | None


@dataclass(frozen=True, kw_only=True)
class StreamTiming:
    """Stamps of a stream on one clock.

    Attributes:
        stream: its name.
        clock: whose stamps.
        count: samples.
        real_hz: distances over the time they cover, None where all stamps are equal.
        nominal_hz: the rate of the median distance, which losses and pauses leave as it is; None
            where all stamps are equal.
        p50_gap_ns, p95_gap_ns, max_gap_ns: of the distances of stamps that differ, in ascending
            order; 0 where there is none.
        duplicate_stamps: samples whose stamp another sample has too, beyond the first.
        backward_stamps: samples whose stamp is less than that of the one that arrived before.
        reset_at: number of the first sample before which the clock jumped back by more than a
            second, None where it never did.
        clocks: its other clocks against `log`, where it has that.
    """

    stream: str
    clock: str
    count: int
    real_hz: float | None
    nominal_hz: float | None
    p50_gap_ns: int
    p95_gap_ns: int
    max_gap_ns: int
    duplicate_stamps: int
    backward_stamps: int
    reset_at: int | None
    clocks: tuple[ClockTiming, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """One line: rates, gaps, faults, clocks."""
        rates = (
            ""
            if self.real_hz is None or self.nominal_hz is None
            else f" at {self.real_hz:.2f} Hz ({self.nominal_hz:.2f} by the median gap), gaps"
            f" {_ms(self.p50_gap_ns)} median, {_ms(self.p95_gap_ns)} p95,"
            f" {_ms(self.max_gap_ns)} at most"
        )
        faults = f"{self.duplicate_stamps} repeated and {self.backward_stamps} backward stamps"
        clocks = [
            f"; {each.clock} is {_ms(each.offset_ns)} off log"
            + ("" if each.drift_ppm is None else f" and drifts {each.drift_ppm:+.1f} ppm")
            for each in self.clocks
        ]
        return f"{self.count} samples by {self.clock}{rates}; {faults}{''.join(clocks)}"


def stream_timing(stream: str, clocks: Clocks, clock: str) -> StreamTiming:
    """Look at the stamps of a stream, in order of arrival."""
    stamps = clocks[clock]
    moves = np.diff(stamps)
    distinct = np.unique(stamps)
    gaps = np.sort(np.diff(distinct))
    covered = int(distinct[-1] - distinct[0])
    resets = np.flatnonzero(moves < -RESET_NS)
    return StreamTiming(
        stream=stream,
        clock=clock,
        count=len(stamps),
        real_hz=(len(stamps) - 1) * _NS / covered if covered else None,
        nominal_hz=_NS / percentile_ns(gaps, 50) if covered else None,
        p50_gap_ns=percentile_ns(gaps, 50),
        p95_gap_ns=percentile_ns(gaps, 95),
        max_gap_ns=percentile_ns(gaps, 100),
        duplicate_stamps=len(stamps) - len(distinct),
        backward_stamps=int((moves < 0).sum()),
        reset_at=int(resets[0]) + 1 if resets.size else None,
        clocks=tuple(
            _against(clocks["log"], name, other)
            for name, other in clocks.items()
            if name != "log" and "log" in clocks
        ),
    )


def percentile_ns(ascending: NDArray[np.int64], percent: int) -> int:
    """The smallest element that `percent` of them do not exceed (nearest rank); 0 for none."""
    if not len(ascending):
        return 0
    return int(ascending[max(0, -(-len(ascending) * percent // 100) - 1)])


def _against(log: NDArray[np.int64], clock: str, stamps: NDArray[np.int64]) -> ClockTiming:
    offset = stamps - log
    drift = _drift_ppm(log, offset) if len(log) >= _FEWEST_FOR_DRIFT else None
    return ClockTiming(clock=clock, offset_ns=percentile_ns(np.sort(offset), 50), drift_ppm=drift)


def _drift_ppm(log: NDArray[np.int64], offset: NDArray[np.int64]) -> float | None:
    half = len(log) // 2
    run, rise = log[half:] - log[: len(log) - half], offset[half:] - offset[: len(log) - half]
    ahead = run > 0
    return float(np.median(rise[ahead] / run[ahead])) * 1e6 if ahead.any() else None


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms"
