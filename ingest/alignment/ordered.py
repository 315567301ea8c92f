"""A stream in the order of its stamps, with the policy that holds for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.notes import Notes
from ingest.alignment.policy import AlignmentPolicy, Method
from ingest.alignment.resample import last_arrivals
from ingest.alignment.timing import StreamTiming, stream_timing
from ingest.errors import EpisodeError
from ingest.timed import TimedCamera, TimedStream, TimedValues


@dataclass(frozen=True, kw_only=True)
class OrderedStream:
    """A stream that can be aligned.

    Attributes:
        stream: as recorded.
        samples: int64 [m], numbers of the samples that count, by ascending stamp.
        stamps: int64 [m], each greater than the one before.
        ticks: int64 [k], all stamps that differ, ascending: those that gave no frame too.
        method: how steps get a sample.
        max_age_ns: from which age on they do not; None for no limit.
        timing: of all its samples.
    """

    stream: TimedStream
    samples: NDArray[np.int64]
    stamps: NDArray[np.int64]
    ticks: NDArray[np.int64]
    method: Method
    max_age_ns: int | None
    timing: StreamTiming

    @property
    def name(self) -> str:
        """Of the stream."""
        return self.stream.name

    @property
    def end_ns(self) -> int:
        """Until when the last sample is fresh, as far as its age is limited."""
        return int(self.ticks[-1]) + (self.max_age_ns or 0)

    @property
    def is_there_all_the_time(self) -> bool:
        """Not so for texts and single samples, which speak of what follows them."""
        is_text = isinstance(self.stream, TimedValues) and self.stream.is_text
        return not is_text and len(self.ticks) > 1


def distinct_streams(streams: Sequence[TimedStream], notes: Notes) -> list[TimedStream]:
    """The streams, those numbered whose name an earlier one has."""
    taken = {stream.name for stream in streams}
    seen: set[str] = set()
    named = []
    for stream in streams:
        name, number = stream.name, 2
        while name in seen or (number > 2 and name in taken):
            name, number = f"{stream.name}_{number}", number + 1
        if name != stream.name:
            detail = f"{stream.source_name} is called {name}: {stream.name} is another stream"
            notes.add("warning", "name-used-twice", name, detail)
        seen.add(name)
        named.append(replace(stream, name=name))
    return named


def timing_of(stream: TimedStream, policy: AlignmentPolicy) -> StreamTiming:
    """Timing of a stream by the clock that counts.

    Raises:
        EpisodeError: it has no such clock.
    """
    clock = policy.clock_of(stream.name)
    if clock not in stream.clocks:
        there = ", ".join(stream.clocks)
        raise EpisodeError(
            f"{stream.name} has no clock {clock}, only {there}",
            reason="no-clock",
            stream=stream.name,
        )
    return stream_timing(stream.name, stream.clocks, clock)


def order_stream(
    stream: TimedStream, timing: StreamTiming, policy: AlignmentPolicy, notes: Notes
) -> OrderedStream:
    """Order a stream, and tell what its stamps are like.

    Raises:
        EpisodeError: its clock was set anew, it has no frame, or the policy means nothing for it.
    """
    name, count = stream.name, timing.count
    method = _method(stream, policy)
    if timing.reset_at is not None:
        raise EpisodeError(
            f"{name}: clock {timing.clock} jumps back by more than a second before sample"
            f" {timing.reset_at} of {count}, so that what came first is not known; another of its"
            f" clocks may do ({', '.join(stream.clocks)})",
            reason="clock-reset",
            stream=name,
        )
    stamps = stream.clocks[timing.clock]
    arrived = np.arange(count)
    if isinstance(stream, TimedCamera):
        arrived = np.flatnonzero(stream.video.index.step_to_frame >= 0)
        if not arrived.size:
            raise EpisodeError(f"{name}: no frame", reason="no-picture", stream=name)
        if less := count - len(arrived):
            detail = f"{less} of {count} stamps gave no frame; the one before stands for them"
            notes.add("warning", "stamps-without-frame", name, detail)
    if back := timing.backward_stamps:
        detail = (
            f"{back} of {count} samples are stamped before the one that came before them; they"
            " are taken in the order of their stamps"
        )
        notes.add("warning", "backward-stamps", name, detail)
    if again := timing.duplicate_stamps:
        detail = f"{again} of {count} samples have the stamp of another; the last to arrive counts"
        notes.add("warning", "repeated-stamps", name, detail)
    samples = arrived[last_arrivals(stamps[arrived])]
    return OrderedStream(
        stream=stream,
        samples=samples,
        stamps=stamps[samples],
        ticks=np.unique(stamps),
        method=method,
        max_age_ns=_max_age(stream, timing, policy),
        timing=timing,
    )


def _method(stream: TimedStream, policy: AlignmentPolicy) -> Method:
    method = policy.of(stream.name).method
    may_be_mixed = isinstance(stream, TimedValues) and stream.may_be_interpolated
    if method != "linear" or may_be_mixed:
        return method
    if stream.name not in policy.streams:
        return "hold"
    raise EpisodeError(
        f"{stream.name}: linear is for continuous floats; hold or nearest",
        reason="bad-policy",
        stream=stream.name,
    )


def _max_age(stream: TimedStream, timing: StreamTiming, policy: AlignmentPolicy) -> int | None:
    given = policy.of(stream.name).max_age_ns
    is_text = isinstance(stream, TimedValues) and stream.is_text
    if given is not None or is_text or not timing.p50_gap_ns:
        return given
    return timing.p50_gap_ns * 3 // 2
