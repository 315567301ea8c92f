"""The order in which spans are drawn: shuffled, yet neighbours are used together.

Spans of an episode are cut into *runs*, a few in a row (see `packing.runs`). A run is open over a
stretch of the stream in which it gives its spans in order, one at a time, among those of the other
open runs. So
the packets of a group of pictures are decoded once for several windows, while a batch still sees
about as many episodes as there are open runs.

The order is computed at once: the run that begins as the c-th span of the shuffled runs gives its
j-th span at time c + j * open_runs + jitter, jitter uniform in [0, open_runs), on a clock that
wraps around at n, the number of spans. Exactly `open_runs` runs (of full length) are then open at
any moment, at the beginning and the end as much as in the middle.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError
from packing.seeded import (
    STREAM_JITTER,
    STREAM_RUNS,
    Indices,
    indices_dtype,
    permutation,
    sorted_indices,
    word_chunks,
)
from packing.spans import Int64s

LEAST_OPEN_RUNS: Final = 256


def enough_open_runs(spans_per_step: float) -> int:
    """256, or twice the spans of a step where that is more.

    A run gives one span per `open_runs` spans of the stream. With fewer open runs than spans in a
    step, neighbours of one run would meet in the same step.
    """
    return max(LEAST_OPEN_RUNS, math.ceil(2 * spans_per_step))


def draw_order(
    runs: Indices,
    open_runs: int,
    seed: int,
    epoch: int,
    counts: Int64s | None = None,
    *,
    lane: int = 0,
) -> Indices:
    """Indices of the spans in the order in which they are drawn, [n], or [sum of counts].

    Args:
        runs: run of each span, ascending from 0 without gaps (see `packing.runs`).
        open_runs: runs open at the same time.
        seed: of the shuffle.
        epoch: each is shuffled afresh.
        counts: int64 [n], how often each span is drawn; once each where None. The k-th repetition
            of a run (of those of its spans that have one) is a run of its own.
        lane: each is shuffled by itself (see `packing.lanes`).

    Raises:
        PackingError: counts of another shape, or negative ones.
    """
    if counts is None:
        return _draw(runs, open_runs, seed, epoch, lane)
    spans, runs = repeat_runs(runs, counts)
    return spans[_draw(runs, open_runs, seed, epoch, lane)]


def require_counts(counts: Int64s, runs: Indices) -> None:
    """Check how often each span occurs.

    Raises:
        PackingError: counts of another shape than the runs', or negative ones.
    """
    if counts.shape != runs.shape or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise PackingError(
            f"counts of spans are {counts.dtype} {counts.shape}, must be {runs.shape} integers of"
            " at least 0"
        )


def repeat_runs(runs: Indices, counts: Int64s) -> tuple[Indices, Indices]:
    """Spans repeated as often as `counts` says, and the runs of these repetitions.

    Args:
        runs: int64 [n], ascending run of each span.
        counts: int64 [n], occurrences of each span; 0 leaves it out.

    Returns:
        spans [sum of counts], first all that occur at all, then all that occur twice, ...;
        and the run of each, ascending from 0 without gaps.

    Raises:
        PackingError: counts of another shape, or negative ones.
    """
    require_counts(counts, runs)
    dtype = indices_dtype(max(len(runs), int(counts.sum())))
    rounds: list[Indices] = [np.zeros(0, dtype)]
    numbers: list[Indices] = [np.zeros(0, dtype)]
    begun = 0
    spans: Indices = np.flatnonzero(counts).astype(dtype, copy=False)
    while len(spans):
        of_round = runs[spans]
        number = np.zeros(len(spans), dtype)
        np.cumsum(of_round[1:] != of_round[:-1], dtype=dtype, out=number[1:])
        numbers.append(number + dtype(begun))
        rounds.append(spans)
        begun += int(number[-1]) + 1
        spans = spans[counts[spans] >= len(rounds)]
    return np.concatenate(rounds), np.concatenate(numbers)


def _draw(runs: Indices, open_runs: int, seed: int, *key: int) -> Indices:
    n = len(runs)
    if n == 0:
        return np.zeros(0, np.int32)
    first = run_beginnings(runs)
    if len(first) == n:  # nothing is kept together
        return permutation(n, seed, STREAM_RUNS, *key)
    together = min(open_runs, len(first))
    begin = _shuffled_beginnings(first, n, seed, *key)
    words = word_chunks(seed, STREAM_JITTER, *key)

    def time(at: Int64s) -> NDArray[np.uint64]:
        run = runs[at[0] : at[-1] + 1]
        jitter = (words(len(at)) % np.uint64(together)).astype(np.int64)
        when: Int64s = (begin[run] + (at - first[run]) * together + jitter) % n
        return when.astype(np.uint64)

    return sorted_indices(n, time)


def run_beginnings(runs: Indices) -> Indices:
    """The first span of each run, ascending."""
    changes = np.ones(len(runs), np.bool_)
    np.not_equal(runs[1:], runs[:-1], out=changes[1:])
    return np.flatnonzero(changes).astype(indices_dtype(len(runs)), copy=False)


def _shuffled_beginnings(first: Indices, n: int, seed: int, *key: int) -> Indices:
    """Where each run begins when the runs follow each other in random order."""
    length = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=length[:-1])
    length[-1] = n - first[-1]
    order = permutation(len(first), seed, STREAM_RUNS, *key)
    begin = np.empty_like(first)
    length_of_shuffled = length[order]
    begin[order] = np.cumsum(length_of_shuffled, dtype=first.dtype) - length_of_shuffled
    return begin
