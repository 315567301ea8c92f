"""Histograms of durations: near quantiles, exact sums, and nothing lost in a merge."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader import LoaderError
from loader.observe.histogram import Histogram

_DURATIONS = st.lists(st.floats(0, 4000, allow_subnormal=False), max_size=60)


def _of(durations: list[float]) -> Histogram:
    histogram = Histogram()
    for seconds in durations:
        histogram.add(seconds)
    return histogram


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.99, 1.0])
def test_quantiles_are_near(share: float) -> None:
    durations = np.random.default_rng(0).lognormal(-6, 2, 5000)
    exact = np.quantile(durations, share, method="inverted_cdf")
    assert _of(durations.tolist()).quantile_s(share) == pytest.approx(exact, rel=0.046)


@given(_DURATIONS, _DURATIONS)
def test_merging_is_recording_both(first: list[float], second: list[float]) -> None:
    merged = _of(first)
    merged.merge(_of(second))
    assert merged.buckets == _of(first + second).buckets
    assert merged.count == len(first) + len(second)
    assert merged.total_s == pytest.approx(sum(first) + sum(second))
    assert merged.since(_of(first)).buckets == _of(second).buckets


@given(_DURATIONS)
def test_a_message_is_json_and_comes_back(durations: list[float]) -> None:
    histogram = _of(durations)
    assert Histogram.from_message(json.loads(json.dumps(histogram.to_message()))) == histogram


def test_a_copy_is_its_own() -> None:
    histogram = _of([0.1])
    copied = histogram.copy()
    histogram.add(0.2)
    assert (copied.count, histogram.count) == (1, 2)


def test_edges() -> None:
    assert Histogram().quantile_s(0.5) == 0.0
    assert _of([0.0]).quantile_s(0.5) < 2e-6
    with pytest.raises(LoaderError, match=r"quantile 1\.5"):
        Histogram().quantile_s(1.5)
