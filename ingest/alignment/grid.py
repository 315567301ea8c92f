"""The steps of an episode: whose stamps they are, and from when to when."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.notes import Notes
from ingest.alignment.ordered import OrderedStream
from ingest.alignment.policy import AlignmentPolicy
from ingest.errors import EpisodeError
from ingest.timed import TimedCamera

_NS: Final = 1_000_000_000
_PRODUCT: Final = 1 << 62
_STEPS_PER_SAMPLE: Final = 100
_FEW_STEPS: Final = 10_000
_MUCH: Final = 0.1  # of the steps, left out at the ends


@dataclass(frozen=True, kw_only=True)
class _Span:
    """From when to when steps are, both included, and the streams that say so."""

    begin: int
    end: int
    first: str
    last: str


def grid_times(
    streams: Sequence[OrderedStream], policy: AlignmentPolicy, notes: Notes
) -> NDArray[np.int64]:
    """The steps in nanoseconds, each later than the one before.

    Raises:
        EpisodeError: no stream, none of that name, none of its stamps in the time that all cover,
            or far more steps than samples.
    """
    primary = _primary(streams, policy.grid, notes)
    span = _span(streams, primary, policy)
    inside = (primary.ticks >= span.begin) & (primary.ticks <= span.end)
    if policy.grid_fps is None and not inside.any():
        raise EpisodeError(
            f"{primary.name} has no stamp in the {(span.end - span.begin) / _NS:.3f} s that all"
            " streams cover: give another grid, or a rate",
            reason="no-overlap",
            stream=primary.name,
        )
    _tell_what_is_outside(primary, inside, span, notes)
    if policy.grid_fps is None:
        return primary.ticks[inside]
    return _at_rate(span, policy.grid_fps, max(each.timing.count for each in streams))


def _primary(streams: Sequence[OrderedStream], wanted: str | None, notes: Notes) -> OrderedStream:
    if not streams:
        raise EpisodeError(f"no stream is left to align{notes.losses()}", reason="nothing-left")
    if wanted is None:
        return min(streams, key=_preference)
    for each in streams:
        if each.name == wanted:
            return each
    there = ", ".join(each.name for each in streams)
    raise EpisodeError(
        f"the grid should be that of {wanted!r}; there are {there}{notes.losses()}",
        reason="no-grid",
        stream=wanted,
    )


def _preference(each: OrderedStream) -> tuple[bool, int, int, str]:
    """A single sample gives no grid where another stream has more."""
    return len(each.stamps) == 1, _rank(each), -len(each.stamps), each.name


def _rank(each: OrderedStream) -> int:
    """Cameras first, then actions, other numbers, texts."""
    if isinstance(each.stream, TimedCamera):
        return 0
    if each.stream.is_text:
        return 3
    return 1 if each.stream.role == "action" else 2


def _span(
    streams: Sequence[OrderedStream], primary: OrderedStream, policy: AlignmentPolicy
) -> _Span:
    own_begin, own_end = int(primary.ticks[0]), int(primary.ticks[-1])
    bounding = [
        each
        for each in streams
        if each is primary
        or (
            each.is_there_all_the_time
            and (
                policy.span == "all"
                or 2 * (min(own_end, each.end_ns) - max(own_begin, int(each.ticks[0])))
                >= own_end - own_begin
            )
        )
    ]
    begins = [int(each.ticks[0]) for each in bounding]
    latest = max(int(each.ticks[-1]) for each in bounding)
    if policy.span == "all":
        return _Span(begin=min(begins), end=latest, first="", last="")
    ends = [min(each.end_ns, latest) for each in bounding]
    late, early = int(np.argmax(begins)), int(np.argmin(ends))
    # Each covers half of the primary, so any two of them meet, and so (Helly) do all.
    return _Span(
        begin=begins[late],
        end=ends[early],
        first=bounding[late].name,
        last=bounding[early].name,
    )


def _tell_what_is_outside(
    primary: OrderedStream, inside: NDArray[np.bool_], span: _Span, notes: Notes
) -> None:
    before = int((primary.ticks < span.begin).sum())
    after = int((primary.ticks > span.end).sum())
    if not before and not after:
        return
    parts = []
    if before:
        parts.append(f"{before} before {span.first} begins")
    if after:
        parts.append(f"{after} after the last sample of {span.last} is fresh")
    notes.add(
        "warning" if before + after > _MUCH * len(inside) else "info",
        "outside-overlap",
        primary.name,
        f"{before + after} of {len(inside)} samples lie outside what all streams cover and are no"
        f" steps: {', '.join(parts)}; span='all' keeps them",
    )


def _at_rate(span: _Span, fps: float, samples: int) -> NDArray[np.int64]:
    """Step k at k / fps after the first, rounded down to a nanosecond, without drift.

    Raises:
        EpisodeError: far more steps than samples, as a damaged stamp makes them.
    """
    period = _NS / Fraction(repr(float(fps)))  # as written: 29.97 is 2997/100
    steps = int((span.end - span.begin) / period) + 1
    if steps > max(_FEW_STEPS, _STEPS_PER_SAMPLE * samples):
        raise EpisodeError(
            f"{steps} steps at {fps:g} Hz for streams of at most {samples} samples: are their"
            " stamps damaged?",
            reason="too-many-steps",
        )
    # All products stay below 2^63, and the period right to a fraction of 1/steps of a nanosecond.
    period = period.limit_denominator(_PRODUCT // steps)
    whole, rest = divmod(period.numerator, period.denominator)
    step = np.arange(steps, dtype=np.int64)
    times: NDArray[np.int64] = span.begin + step * whole + step * rest // period.denominator
    return times
