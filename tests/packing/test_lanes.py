"""Lanes: every run in one of them, equally filled, and nothing else changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from packing.arrange import Arrangement, arrange
from packing.balance import max_over_mean, pack_costs
from packing.lanes import choose_lanes, deal_runs, lane_look_ahead
from packing.settings import PlanSettings
from packing.spans import Spans
from tests.packing.synthetic import runs_of_steps, spans_of_lengths

BUDGET = 128


def lanes_of_runs(arranged: Arrangement, runs: NDArray[np.int64], lanes: int) -> list[set[int]]:
    """Lanes in which each run's spans lie."""
    lane = arranged.span_slots() % lanes
    of_item = runs[arranged.packing.items]
    return [set(lane[of_item == run].tolist()) for run in range(int(runs[-1]) + 1)]


@given(
    st.lists(st.tuples(st.integers(1, BUDGET), st.booleans()), min_size=1, max_size=60),
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from(["shuffle-fill", "bfd"]),
    st.integers(0, 2),
)
def test_each_run_in_one_lane_and_every_occurrence_once(
    drawn: list[tuple[int, bool]], lanes: int, packer: str, times: int
) -> None:
    tokens = np.array([length for length, _ in drawn])
    spans = spans_of_lengths(tokens, images=tokens % 3)
    runs = np.cumsum([0, *(begins for _, begins in drawn[1:])])
    settings = PlanSettings(
        budget_tokens=BUDGET,
        slots_per_step=6,
        epochs=2,
        packer="bfd" if packer == "bfd" else "shuffle-fill",
        lanes=lanes,
        open_runs=4,
        max_images=5,
    )
    counts = [np.full(len(tokens), times + epoch, np.int64) for epoch in (0, 1)]
    arranged = arrange(spans, runs, settings, counts.__getitem__ if times else None)
    packing = arranged.packing
    assert len(packing) % 6 == 0
    assert (packing.sum(spans.tokens) <= BUDGET).all()
    assert (packing.sum(spans.images) <= 5).all()
    of_item = np.repeat(arranged.epoch, packing.sizes)
    for epoch in (0, 1):
        asked = counts[epoch] if times else np.ones(len(tokens), np.int64)
        assert np.array_equal(
            np.bincount(packing.items[of_item == epoch], minlength=len(tokens)), asked
        )
    if not times:
        for epoch in (0, 1):
            first = of_item == epoch
            lane = (arranged.span_slots() % lanes)[first]
            pairs = np.unique(np.stack([runs[packing.items[first]], lane]), axis=1)
            assert pairs.shape[1] == int(runs[-1]) + 1


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=200),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_lanes_differ_by_no_more_than_the_largest_run(
    tokens: list[int], lanes: int, seed: int
) -> None:
    lane = deal_runs(np.array(tokens), lanes, seed, 0)
    held = np.bincount(lane, weights=tokens, minlength=lanes)
    assert len(held) == lanes
    assert held.max() - held.min() <= max(tokens)


def test_runs_are_dealt_afresh_in_every_epoch() -> None:
    tokens = np.arange(1, 400)
    dealt = [deal_runs(tokens, 4, *key) for key in ((0, 0), (0, 1), (1, 0))]
    together = [(one == other).mean() for one in dealt for other in dealt if one is not other]
    assert max(together) < 0.4


@pytest.mark.parametrize(
    ("slots", "packs", "lanes"),
    [(8, 10**6, 8), (8, 1024, 8), (8, 1023, 4), (8, 100, 1), (6, 128 * 5, 3), (7, 128 * 6, 1)],
)
def test_as_many_lanes_as_the_data_fills(slots: int, packs: int, lanes: int) -> None:
    assert choose_lanes(slots, packs) == lanes


def test_look_ahead_of_a_lane() -> None:
    shares = [lane_look_ahead(1024, lanes) for lanes in (1, 2, 8, 64)]
    assert shares == [1024, 512, 128, 128]
    assert lane_look_ahead(16, 8) == 16


@pytest.mark.parametrize("slots", [4, 8])
def test_chosen_lanes_decode_a_run_on_one_rank_at_the_price_of_a_few_steps(slots: int) -> None:
    spans = windows(300)
    runs = runs_of_steps(spans, 8)

    def plan(lanes: int | None) -> Arrangement:
        settings = PlanSettings(budget_tokens=4096, slots_per_step=slots, lanes=lanes)
        return arrange(spans, runs, settings)

    without, chosen = plan(1), plan(None)
    assert chosen.settings.lanes == slots
    assert all(len(lanes) == 1 for lanes in lanes_of_runs(chosen, runs, slots)[:500])
    assert sum(map(len, lanes_of_runs(without, runs, slots)[:500])) > 500 * 2.5
    # Lanes differ by a run, here of one or two packs, and each has a last pack to fill.
    assert len(chosen.packing) - len(without.packing) <= 3 * slots
    costs = [pack_costs(plan.packing, spans, plan.settings.cost) for plan in (without, chosen)]
    before, after = (max_over_mean(cost[: -2 * slots], slots, slots) for cost in costs)
    assert after < before + 0.01


def windows(episodes: int) -> Spans:
    """Windows of one step, of one, two or three cameras."""
    at = np.arange(episodes)
    steps = 30 + at * 7919 % 101
    episode = np.repeat(at, steps)
    step = np.arange(len(episode)) - np.repeat(np.cumsum(steps) - steps, steps)
    tokens = np.repeat(256 * (1 + at % 3) + 10 + at * 31 % 50, steps)
    return spans_of_lengths(tokens, episode=episode, step=step)


@pytest.mark.parametrize("packer", ["shuffle-fill", "bfd"])
def test_where_nothing_is_shared_there_is_one_lane(packer: str) -> None:
    spans = windows(300)
    runs = np.arange(len(spans)) if packer == "shuffle-fill" else runs_of_steps(spans, 8)
    settings = PlanSettings(
        budget_tokens=4096, slots_per_step=8, packer="bfd" if packer == "bfd" else "shuffle-fill"
    )
    assert arrange(spans, runs, settings).settings.lanes == 1
