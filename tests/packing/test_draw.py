"""The drawing order: a permutation, local inside runs, diverse across them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.draw import draw_order, enough_open_runs, repeat_runs


@given(
    st.lists(st.integers(1, 6), max_size=30),
    st.integers(1, 40),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_every_span_is_drawn_once(
    run_lengths: list[int], open_runs: int, seed: int, epoch: int
) -> None:
    runs = np.repeat(np.arange(len(run_lengths)), run_lengths)
    order = draw_order(runs, open_runs, seed, epoch)
    assert sorted(order.tolist()) == list(range(len(runs)))
    again = draw_order(runs, open_runs, seed, epoch)
    assert np.array_equal(order, again)


def test_at_most_the_open_runs_are_open_and_runs_stay_in_order() -> None:
    length, count, open_runs = 8, 500, 32
    runs = np.repeat(np.arange(count), length)
    position = np.argsort(draw_order(runs, open_runs, 0, 0)).reshape(count, length)
    first, last = position.min(axis=1), position.max(axis=1)
    # Runs that lie across the wrap of the clock begin at the end of the stream.
    whole = last - first < len(runs) // 2
    assert (~whole).sum() <= open_runs + 1
    assert (np.diff(position[whole], axis=1) > 0).all()
    assert (last - first)[whole].max() <= (length + 1) * open_runs
    at = np.arange(len(runs))
    opened = (first[whole, None] <= at).sum(axis=0) - (last[whole, None] < at).sum(axis=0)
    assert opened.max() <= open_runs + length
    assert opened[len(runs) // 2] >= open_runs - length


def test_seed_and_epoch_change_the_order() -> None:
    runs = np.arange(100)
    orders = {tuple(draw_order(runs, 16, *key).tolist()) for key in ((0, 0), (0, 1), (1, 0))}
    assert len(orders) == 3


@pytest.mark.parametrize(("spans", "runs"), [(1.0, 256), (128.0, 256), (128.1, 257), (2e3, 4000)])
def test_enough_open_runs_for_a_step(spans: float, runs: int) -> None:
    assert enough_open_runs(spans) == runs


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), max_size=20), st.integers(1, 9))
def test_spans_are_drawn_as_often_as_counted(drawn: list[tuple[int, int]], open_runs: int) -> None:
    runs = np.repeat(np.arange(len(drawn)), [length for length, _ in drawn])
    counts = np.repeat([times for _, times in drawn], [length for length, _ in drawn])
    counts = counts.astype(np.int64)
    order = draw_order(runs, open_runs, 0, 0, counts)
    assert np.array_equal(np.bincount(order, minlength=len(runs)), counts)


def test_a_repetition_of_a_run_is_a_run_of_its_own() -> None:
    runs = np.array([0, 0, 0, 1, 1])
    spans, repeated = repeat_runs(runs, np.array([1, 3, 2, 0, 2]))
    assert spans.tolist() == [0, 1, 2, 4, 1, 2, 4, 1]
    assert repeated.tolist() == [0, 0, 0, 1, 2, 2, 3, 4]
