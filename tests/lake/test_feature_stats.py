"""Statistics equal NumPy's, and merging parts equals taking the whole."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from lake.errors import SpecError
from lake.feature_stats import MAX_ELEMENTS, QUANTILES, FeatureStats, combine

FINITE = st.floats(-1e6, 1e6)


@given(
    values=hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 3)), elements=FINITE)
)
def test_one_part_equals_numpy(values: NDArray[np.float64]) -> None:
    stats = FeatureStats.of(values)
    assert (stats.count, stats.invalid) == (len(values), 0)
    np.testing.assert_array_equal(stats.min, values.min(axis=0))
    np.testing.assert_array_equal(stats.max, values.max(axis=0))
    np.testing.assert_allclose(stats.mean, values.mean(axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(stats.std, values.std(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(stats.quantiles, np.quantile(values, QUANTILES, axis=0))


@example(parts=[np.zeros((1, 2)), np.array([[0.0, 2e-311], [2e-311, 2e-311]])])
@given(
    parts=st.lists(
        hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.just(2)), elements=FINITE),
        min_size=1,
        max_size=6,
    )
)
def test_merged_parts_equal_the_whole(parts: list[NDArray[np.float64]]) -> None:
    whole = FeatureStats.of(np.concatenate(parts))
    merged = combine([FeatureStats.of(part) for part in parts])
    assert merged.count == whole.count
    np.testing.assert_array_equal(merged.min, whole.min)
    np.testing.assert_array_equal(merged.max, whole.max)
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(merged.std, whole.std, rtol=1e-6, atol=1e-5)
    assert (np.diff(merged.quantiles, axis=0) >= 0).all()
    np.testing.assert_array_equal(merged.quantiles[0], whole.min)
    np.testing.assert_array_equal(merged.quantiles[-1], whole.max)


def test_any_grouping_gives_the_same_moments() -> None:
    rng = np.random.default_rng(1)
    parts = [FeatureStats.of(rng.normal(1e4, 1e-2, (50, 3))) for _ in range(6)]
    flat = combine(parts)
    nested = combine([combine(parts[:1]), combine([combine(parts[1:3]), combine(parts[3:])])])
    np.testing.assert_allclose(nested.mean, flat.mean, rtol=1e-12)
    np.testing.assert_allclose(nested.m2, flat.m2, rtol=1e-7)


def test_merged_quantiles_are_close_to_those_of_all_values() -> None:
    rng = np.random.default_rng(2)
    episodes = [rng.normal(rng.normal(), 1.0, (rng.integers(50, 300), 1)) for _ in range(60)]
    whole = np.concatenate(episodes)
    merged = combine([FeatureStats.of(episode) for episode in episodes])
    spread = whole.std()
    for probability in (0.01, 0.1, 0.5, 0.9, 0.99):
        exact = np.quantile(whole, probability)
        assert abs(merged.quantile(probability)[0] - exact) < 0.08 * spread, probability
    assert merged.q01[0] == merged.quantile(0.01)[0] < merged.q99[0]


def test_quantiles_of_constant_parts_are_steps() -> None:
    merged = combine(
        [FeatureStats.of(np.full((30, 1), 2.0)), FeatureStats.of(np.full((70, 1), 5.0))]
    )
    assert merged.quantile(0.1)[0] == pytest.approx(2.0, abs=1.0)
    assert merged.quantile(0.5)[0] == 5.0
    assert merged.std[0] == pytest.approx(np.sqrt(0.3 * 0.7) * 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_steps_that_are_not_finite_or_not_valid_do_not_count(bad: float) -> None:
    values = np.array([[1.0, 2.0], [bad, 0.0], [3.0, 4.0], [9.0, 9.0]])
    stats = FeatureStats.of(values, np.array([True, True, True, False]))
    assert (stats.count, stats.invalid) == (2, 2)
    assert stats.mean.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (np.array(["a", "b"], dtype=object), 0),
        (np.zeros((2, MAX_ELEMENTS + 1), np.uint8), 0),
        (np.full((2, 3), np.nan), 3),
    ],
)
def test_nothing_to_measure(values: NDArray[Any], size: int) -> None:
    stats = FeatureStats.of(values)
    assert stats.count + stats.invalid == 2
    assert stats.mean.shape == (size,)
    assert np.isnan(stats.mean).all()
    merged = combine([stats, stats])
    assert merged.count == 2 * stats.count
    assert merged.mean.shape == (size,)


def test_an_empty_part_changes_nothing() -> None:
    full = FeatureStats.of(np.arange(6.0).reshape(3, 2))
    merged = combine([FeatureStats.of(np.full((4, 2), np.nan)), full])
    assert (merged.count, merged.invalid) == (3, 4)
    np.testing.assert_array_equal(merged.mean, full.mean)


def test_integers_bools_and_large_values() -> None:
    assert FeatureStats.of(np.array([True, False, True, True])).mean.tolist() == [0.75]
    assert FeatureStats.of(np.array([2**40, 2**40 + 2])).std.tolist() == [1.0]
    assert np.isinf(FeatureStats.of(np.array([1e308, -1e308])).m2).all()


def test_parts_of_different_sizes_do_not_merge() -> None:
    with pytest.raises(SpecError, match="2 parts"):
        combine([FeatureStats.of(np.zeros((2, 2))), FeatureStats.of(np.zeros((2, 3)))])
