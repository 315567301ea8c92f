"""Lanes: parts of the stream that feed the same slots of every step, so that a run has one rank.

Rank r of w ranks takes the slots r, r + w, ... of a step. Spans of a run that land in any slot are
decoded by as many ranks as the run has spans, each decoding the same group of pictures. Therefore
the runs are dealt into L lanes, L a divisor of S. Each lane is drawn and packed by itself and feeds
the slots l, l + L, ...: at every world size that divides L, a run is decoded by one rank, and at
any other by no more ranks than share its lane's slots.
"""

from typing import Final

import numpy as np

from packing.draw import draw_order, repeat_runs, run_beginnings
from packing.seeded import STREAM_LANES, Indices, permutation, random_words, sorted_indices
from packing.settings import PlanSettings
from packing.spans import Int64s

LEAST_LANE_PACKS: Final = 128
"""Packs of a lane and epoch: all wait for the longest lane, which is longer by a run and a pack."""

LEAST_LOOK_AHEAD: Final = 128


def choose_lanes(slots: int, packs: int) -> int:
    """The most lanes, a divisor of S, of which each has 128 packs.

    Args:
        slots: slots of a step, S.
        packs: of an epoch, about.
    """
    most = max(1, packs // LEAST_LANE_PACKS)
    return max(lanes for lanes in range(1, slots + 1) if slots % lanes == 0 and lanes <= most)


def lane_look_ahead(look_ahead: int, lanes: int) -> int:
    """Spans of a lane from which its packs are closed: its share, but at least 128.

    A span that closes a pack early begins its run early; a lane is as many times slower than the
    stream as there are lanes, so with all of the look-ahead runs would be open for longer.
    """
    return max(look_ahead // lanes, min(look_ahead, LEAST_LOOK_AHEAD))


def draw_lanes(
    runs: Indices, tokens: Indices, settings: PlanSettings, epoch: int, counts: Int64s | None
) -> list[Indices]:
    """The spans of each lane in the order in which they are drawn.

    Args:
        runs: ascending run of each span.
        tokens: [n], of each span.
        settings: with `lanes` and `open_runs` chosen.
        epoch: each is dealt and shuffled afresh.
        counts: int64 [n], how often each span occurs; once each where None.

    Raises:
        PackingError: counts that are not such.
    """
    lanes, open_runs = settings.lanes or 1, settings.open_runs or 1
    if lanes == 1:
        return [draw_order(runs, open_runs, settings.seed, epoch, counts)]
    spans: Indices | None = None
    if counts is not None:
        spans, runs = repeat_runs(runs, counts)
        tokens = tokens[spans]
    of_runs = np.add.reduceat(tokens, run_beginnings(runs), dtype=np.int64)
    lane_of_run = deal_runs(of_runs, lanes, settings.seed, epoch).astype(np.uint64)
    lane = lane_of_run[runs]
    by_lane = sorted_indices(len(runs), lambda at: lane[at[0] : at[-1] + 1])
    ends = np.cumsum(np.bincount(lane.astype(np.int64), minlength=lanes))
    orders: list[Indices] = []
    for number, at in enumerate(np.split(by_lane, ends[:-1])):
        drawn = at[_draw_lane(runs[at], -(-open_runs // lanes), settings.seed, epoch, number)]
        orders.append(drawn if spans is None else spans[drawn])
    return orders


def _draw_lane(runs: Indices, open_runs: int, seed: int, epoch: int, lane: int) -> Indices:
    """`draw_order` of runs with gaps between their numbers."""
    if not len(runs):
        return runs
    beginnings = run_beginnings(runs)
    dense = np.zeros(len(runs), runs.dtype)
    dense[beginnings[1:]] = 1
    return draw_order(np.cumsum(dense, dtype=runs.dtype), open_runs, seed, epoch, lane=lane)


def deal_runs(tokens: Int64s, lanes: int, seed: int, epoch: int) -> Int64s:
    """Lane of each run, int64 [R]: random, yet the lanes' tokens differ by at most one run's.

    Runs in the order of their tokens are dealt out in rounds, in each round to every lane one, in
    random order. The differences of all rounds add up to no more than the largest run.

    Args:
        tokens: int64 [R], of each run.
        lanes: L.
        seed: of the shuffle.
        epoch: each is dealt afresh.
    """
    order = permutation(len(tokens), seed, STREAM_LANES, epoch)
    order = order[np.argsort(tokens[order], kind="stable")]
    rounds = -(-len(tokens) // lanes)
    words = random_words(rounds * lanes, seed, STREAM_LANES, epoch, 1).reshape(rounds, lanes)
    # The first round, of the smallest, is the one that may be too small for all.
    seats = np.argsort(words, axis=1, kind="stable").ravel()[rounds * lanes - len(tokens) :]
    lane = np.empty(len(tokens), np.int64)
    lane[order] = seats
    return lane
