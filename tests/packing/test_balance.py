"""Steps of like cost, and the slices of the ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from packing.balance import balance, enough_window_steps, max_over_mean
from packing.packs import Packing
from tests.packing.synthetic import lognormal_lengths


def one_each(count: int) -> Packing:
    return Packing(items=np.arange(count), offsets=np.arange(count + 1))


def ordered_by(cost: NDArray[np.int64], slots: int, window: int) -> Packing:
    return balance(one_each(len(cost)), cost, slots=slots, window_steps=window, seed=0, epoch=0)


@given(st.lists(st.integers(1, 1000), max_size=70), st.integers(1, 9), st.integers(1, 5))
def test_every_pack_once_and_only_the_last_step_is_unfilled(
    cost: list[int], slots: int, window: int
) -> None:
    ordered = ordered_by(np.array(cost, np.int64), slots, window)
    assert sorted(ordered.items.tolist()) == list(range(len(cost)))
    assert len(ordered) == -(-len(cost) // slots) * slots
    empty = ordered.sizes == 0
    assert empty.sum() == len(ordered) - len(cost)
    assert not empty[: len(cost)].any()


def test_a_window_holds_its_packs() -> None:
    """Packs do not move beyond their window, so locality of the draw is kept."""
    count, slots, window = 960, 8, 5
    cost = np.random.default_rng(0).integers(1, 1000, count)
    step = ordered_by(cost, slots, window).items.reshape(-1, slots)
    number = np.arange(len(step))[:, None] // window
    assert (step // (slots * window) == number).all()


@pytest.mark.parametrize("slots", [8, 64])
def test_like_cost_shares_a_step(slots: int) -> None:
    cost = lognormal_lengths(slots * 200, seed=3)
    ordered = ordered_by(cost, slots, 32)
    before, after = (max_over_mean(c, slots, slots) for c in (cost, cost[ordered.items]))
    assert before > 2
    assert after - 1 < (before - 1) / 8


def test_window_is_no_larger_than_the_costs_ask_for() -> None:
    slots = 16
    rng = np.random.default_rng(0)
    equal = np.full(slots * 100, 7)
    near = rng.integers(1000, 1100, slots * 100)
    wild = rng.integers(1, 1000, slots * 100)
    windows = [enough_window_steps(cost, slots) for cost in (equal, near, wild)]
    assert windows[0] == 1 < windows[1] < windows[2] <= 64
    for cost, window in ((near, windows[1]), (wild, windows[2])):
        ratios = [
            max_over_mean(cost[ordered_by(cost, slots, w).items], slots, slots)
            for w in (window // 2, window)
        ]
        assert ratios[0] > 1.02 >= ratios[1]
    assert enough_window_steps(equal[:5], slots) == 1


def test_max_over_mean_by_hand() -> None:
    cost = np.array([1, 2, 3, 4, 10, 10, 10, 10])
    # Two ranks: 1+3 and 2+4 in the first step, 20 and 20 in the second.
    assert max_over_mean(cost, 4, 2) == (6 + 20) / (5 + 20)
    assert max_over_mean(cost, 4, 4) == (4 + 10) / (2.5 + 10)
    # Three ranks: slots 0 and 3, 1, 2.
    assert max_over_mean(cost, 4, 3) == pytest.approx((5 + 20) / (10 / 3 + 40 / 3))
    assert max_over_mean(np.zeros(0, np.int64), 4, 2) == 1.0


@given(
    st.lists(st.lists(st.integers(1, 1000), max_size=30), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 5),
)
def test_lanes_keep_to_their_slots(lanes: list[list[int]], places: int, window: int) -> None:
    cost = np.array([c for lane in lanes for c in lane], np.int64)
    slots = places * len(lanes)
    ordered = balance(
        one_each(len(cost)),
        cost,
        slots=slots,
        window_steps=window,
        seed=0,
        epoch=0,
        lane_packs=[len(lane) for lane in lanes],
    )
    assert len(ordered) == -(-max(map(len, lanes)) // places) * slots
    slot = np.repeat(np.arange(len(ordered)), ordered.sizes) % slots
    begin = 0
    for number, lane in enumerate(lanes):
        own = ordered.items[slot % len(lanes) == number]
        assert sorted(own.tolist()) == list(range(begin, begin + len(lane)))
        begin += len(lane)
    whole = min(map(len, lanes)) // places * slots
    assert (ordered.sizes[:whole] == 1).all()


def test_a_step_takes_packs_of_one_rank_by_cost_from_every_lane() -> None:
    rng = np.random.default_rng(0)
    cost = rng.integers(1, 1000, 8 * 64 * 4)
    lane_packs = [len(cost) // 8] * 8
    window = enough_window_steps(cost, 8, lane_packs)
    ordered = balance(
        one_each(len(cost)),
        cost,
        slots=8,
        window_steps=64,
        seed=0,
        epoch=0,
        lane_packs=lane_packs,
    )
    assert window == 64
    assert max_over_mean(cost, 8, 8) > 1.7
    assert max_over_mean(cost[ordered.items], 8, 8) < 1.2
