"""The steps of an episode: whose stamps they are, and from when to when."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.policy import AlignmentPolicy
from ingest.errors import EpisodeError

_NS = 1_000_000_000
_MOST_STEPS = 100_000_000  # 23 days at 50 Hz


@dataclass(frozen=True, kw_only=True)
class Stamped:
    """What of a stream the grid depends on.

    Attributes:
        name: of the stream.
        stamps: int64 [n], ascending.
        rank: 0 for cameras, 1 for actions, 2 for other numbers, 3 for texts.
        reach_ns: for how long its last sample stands for steps behind it.
    """

    name: str
    stamps: NDArray[np.int64]
    rank: int
    reach_ns: int = 0

    @property
    def bounds_the_grid(self) -> bool:
        """Whether it is there all the time: not texts, nor single samples."""
        return self.rank < 3 and len(self.stamps) > 1


def grid_times(
    streams: Sequence[Stamped], policy: AlignmentPolicy
) -> tuple[NDArray[np.int64], str]:
    """The steps in nanoseconds, ascending, and the stream that gave them ("" for a rate).

    Raises:
        EpisodeError: no stream, no stream of that name, or no time that all of them cover.
    """
    primary = _primary(streams, policy.grid)
    bounding = [each for each in streams if each.bounds_the_grid] or [primary]
    first = [int(each.stamps[0]) for each in bounding]
    last = [int(each.stamps[-1]) + each.reach_ns for each in bounding]
    overlap = policy.span == "overlap"
    latest = max(int(each.stamps[-1]) for each in bounding)
    begin, end = (max(first), min(*last, latest)) if overlap else (min(first), latest)
    if begin > end:
        late, early = bounding[int(np.argmax(first))], bounding[int(np.argmin(last))]
        raise EpisodeError(
            f"no time is covered by all streams: {late.name} begins {(begin - end) / _NS:.3f} s"
            f" after the last sample of {early.name} is fresh; align with span='all', or leave one"
            " out",
            reason="no-overlap",
            stream=late.name,
        )
    if policy.grid_fps is None:
        stamps = np.unique(primary.stamps)
        inside = stamps[(stamps >= begin) & (stamps <= end)]
        if not len(inside):
            raise EpisodeError(
                f"{primary.name} has no stamp in the {(end - begin) / _NS:.3f} s that all streams"
                " cover: give another grid, or a rate",
                reason="no-overlap",
                stream=primary.name,
            )
        return inside, primary.name
    rate = Fraction(policy.grid_fps).limit_denominator(1_000_000)
    steps = int((end - begin) * rate / _NS) + 1
    if steps > _MOST_STEPS:
        raise EpisodeError(
            f"{steps} steps at {policy.grid_fps:g} Hz, more than {_MOST_STEPS}: are the stamps"
            " damaged?",
            reason="too-many-steps",
        )
    number = np.arange(steps, dtype=object) * (_NS * rate.denominator)
    return (number // rate.numerator).astype(np.int64) + begin, ""


def _primary(streams: Sequence[Stamped], wanted: str | None) -> Stamped:
    if not streams:
        raise EpisodeError("no stream is left to align", reason="nothing-left")
    if wanted is None:
        return min(streams, key=lambda each: (each.rank, -len(each.stamps), each.name))
    for each in streams:
        if each.name == wanted:
            return each
    raise EpisodeError(
        f"the grid should be that of {wanted!r}; there are {', '.join(s.name for s in streams)}",
        reason="no-grid",
        stream=wanted,
    )
