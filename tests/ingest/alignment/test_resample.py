"""Samples of steps, against loops that look at one step at a time."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingest.alignment.align import Aligned
from ingest.alignment.policy import Method, StreamPolicy
from ingest.alignment.resample import NO_SAMPLE_NS, last_arrivals, linear
from tests.ingest.alignment.timed_streams import MS, aligned, camera, steps_ms, stream

_STAMPS = st.lists(st.integers(0, 60), min_size=1, max_size=12)
_GRID = st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True).map(sorted)
_AGE = st.one_of(st.none(), st.integers(0, 20))


def last_before(stamps: Sequence[int], time: int) -> int | None:
    """Of the newest stamp at or before `time`, the sample that arrived last."""
    found = None
    for number, stamp in enumerate(stamps):
        if stamp <= time and (found is None or stamp >= stamps[found]):
            found = number
    return found


def first_after(stamps: Sequence[int], time: int) -> int | None:
    """Of the oldest stamp after `time`, the sample that arrived last."""
    found = None
    for number, stamp in enumerate(stamps):
        if stamp > time and (found is None or stamp <= stamps[found]):
            found = number
    return found


def median_gap(stamps: Sequence[int]) -> int | None:
    """The lower median distance of stamps that differ."""
    distinct = sorted(set(stamps))
    gaps = sorted(b - a for a, b in itertools.pairwise(distinct))
    return gaps[(len(gaps) - 1) // 2] if gaps else None


def limit_ns(stamps: Sequence[int], age_ms: int | None) -> int:
    if age_ms is not None:
        return age_ms * MS
    period = median_gap(stamps)
    return 1 << 60 if period is None else period * MS * 3 // 2


def with_policy(
    stamps: Sequence[int], grid: Sequence[int], values: Any = None, **policy: Any
) -> Aligned:
    return aligned(
        [stream("x", stamps, values), stream("clock", grid)],
        grid="clock",
        span="all",
        streams={"x": StreamPolicy(**policy)},
    )


def validity(result: Aligned, name: str = "x") -> NDArray[np.bool_]:
    """bool [T], all False for a stream that was left out."""
    if name not in result.features:
        return np.zeros(len(result.timestamps_ns), np.bool_)
    return result.valid.get(name, np.ones(len(result.timestamps_ns), np.bool_))


@settings(max_examples=200)
@given(stamps=_STAMPS, grid=_GRID, age=_AGE, method=st.sampled_from(["hold", "nearest"]))
def test_the_sample_of_a_step_is_what_a_plain_search_finds(
    stamps: list[int], grid: list[int], age: int | None, method: Method
) -> None:
    limit = None if age is None else age * MS
    result = with_policy(stamps, grid, method=method, max_age_ns=limit)
    assert steps_ms(result) == grid
    valid = validity(result)
    for step, time in enumerate(grid):
        found = last_before(stamps, time)
        later = first_after(stamps, time)
        if (
            method == "nearest"
            and later is not None
            and (found is None or stamps[later] - time < time - stamps[found])
        ):
            found = later
        distance = None if found is None else abs(time - stamps[found]) * MS
        fresh = distance is not None and distance <= limit_ns(stamps, age)
        assert valid[step] == fresh
        if "x" not in result.features:
            continue
        assert found is not None or result.ages_ns["x"][step] == NO_SAMPLE_NS
        if found is not None:
            assert result.ages_ns["x"][step] == (time - stamps[found]) * MS
        if fresh:
            assert result.features["x"][step] == found
        else:
            assert np.isnan(result.features["x"][step])


@settings(max_examples=150)
@given(stamps=_STAMPS, grid=_GRID, age=_AGE)
def test_linear_is_what_interpolation_gives_where_both_sides_are_near(
    stamps: list[int], grid: list[int], age: int | None
) -> None:
    numbers = np.array(stamps, np.float64) ** 2 + np.arange(len(stamps)) / 100
    limit = None if age is None else age * MS
    result = with_policy(stamps, grid, numbers, method="linear", max_age_ns=limit)
    valid = validity(result)
    for step, time in enumerate(grid):
        one, other = last_before(stamps, time), first_after(stamps, time)
        if one is None:
            assert not valid[step]
            continue
        near = limit_ns(stamps, age)
        exact = stamps[one] == time
        follows = other is not None and (stamps[other] - time) * MS <= near
        assert valid[step] == ((time - stamps[one]) * MS <= near and (exact or follows))
        if not valid[step]:
            continue
        if exact:
            expected = numbers[one]
        else:
            assert other is not None
            share = (time - stamps[one]) / (stamps[other] - stamps[one])
            expected = numbers[one] + share * (numbers[other] - numbers[one])
        assert result.features["x"][step] == pytest.approx(expected, rel=1e-12, abs=1e-12)


@settings(max_examples=100)
@given(
    streams=st.lists(_STAMPS, min_size=1, max_size=3),
    grid=_GRID,
    ages=st.lists(st.integers(10, 40), min_size=3, max_size=3),
)
def test_a_step_is_kept_where_all_dropping_streams_have_a_sample(
    streams: list[list[int]], grid: list[int], ages: list[int]
) -> None:
    def fresh(number: int, time: int) -> bool:
        found = last_before(streams[number], time)
        return found is not None and time - streams[number][found] <= ages[number]

    expected = [t for t in grid if all(fresh(number, t) for number in range(len(streams)))]
    assume(expected)
    result = aligned(
        [stream(f"x{number}", stamps) for number, stamps in enumerate(streams)]
        + [stream("clock", grid)],
        grid="clock",
        span="all",
        streams={
            f"x{number}": StreamPolicy(method="drop", max_age_ns=ages[number] * MS)
            for number in range(len(streams))
        },
    )
    assert steps_ms(result) == expected
    for number, stamps in enumerate(streams):
        assert f"x{number}" not in result.valid
        assert result.features[f"x{number}"].tolist() == [last_before(stamps, t) for t in expected]
    dropped = {f.stream: f.detail for f in result.findings if f.reason == "dropped-steps"}
    for number in range(len(streams)):
        lost = sum(not fresh(number, time) for time in grid)
        told = dropped.get(f"x{number}", "0 of")
        assert told.startswith(f"{lost} of")


@settings(max_examples=100)
@given(grid=_GRID, stamps=_STAMPS, lag=st.integers(0, 10))
def test_a_lagged_action_is_what_the_later_step_has(
    grid: list[int], stamps: list[int], lag: int
) -> None:
    limit = {"action": StreamPolicy(max_age_ns=20 * MS), "twin": StreamPolicy(max_age_ns=20 * MS)}
    result = aligned(
        [
            stream("action", stamps, role="action"),
            stream("twin", stamps),
            stream("clock", grid),
        ],
        grid="clock",
        span="all",
        action_lag_steps=lag,
        streams=limit,
    )
    lagged, plain = validity(result, "action"), validity(result, "twin")
    for step in range(len(grid)):
        later = step + lag
        assert lagged[step] == (later < len(grid) and plain[later])
        if lagged[step]:
            assert result.features["action"][step] == result.features["twin"][later]
            assert result.ages_ns["action"][step] == result.ages_ns["twin"][later]
        elif "action" in result.features:
            assert np.isnan(result.features["action"][step])


@settings(max_examples=100)
@given(
    frames=st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=10),
    grid=_GRID,
)
def test_a_step_shows_the_newest_frame_at_or_before_it(
    frames: list[tuple[int, bool]], grid: list[int]
) -> None:
    stamps, numbers, shown = [], [], 0
    for stamp, gave_one in frames:
        stamps.append(stamp)
        numbers.append(shown if gave_one else -1)
        shown += gave_one
    assume(shown)
    result = aligned(
        [stream("clock", grid)],
        [camera(stamps, frames=numbers)],
        grid="clock",
        span="all",
        streams={"top": StreamPolicy(max_age_ns=20 * MS)},
    )
    there = [n for n in range(len(stamps)) if numbers[n] >= 0]
    expected = []
    for time in grid:
        found = last_before([stamps[n] for n in there], time)
        old = found is None or time - stamps[there[found]] > 20
        expected.append(-1 if found is None or old else numbers[there[found]])
    if "top" in result.cameras:
        assert result.cameras["top"].index.step_to_frame.tolist() == expected
    else:
        assert set(expected) == {-1}


def test_of_equal_stamps_the_last_arrival_counts_on_either_side() -> None:
    assert last_arrivals(np.array([5, 1, 5, 3, 1])).tolist() == [4, 3, 2]
    result = with_policy([0, 10, 10], [0, 8, 10], method="nearest")
    assert result.features["x"].tolist() == [0, 2, 2]
    mixed = with_policy([0, 10, 10], [0, 5, 10], method="linear")
    assert mixed.features["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_linear_keeps_samples_and_constants_to_the_bit(dtype: Any) -> None:
    stamps = np.array([0, 10, 20, 30, 40], np.int64) * MS
    values = np.array([0.1, np.nan, 0.1, 0.1, np.inf], dtype)
    grid = np.array([0, 5, 20, 23, 30, 35, 40], np.int64) * MS
    found, chosen = linear(values, stamps, grid, None)
    assert found.dtype == dtype
    assert chosen.valid.all()
    np.testing.assert_array_equal(
        found, np.array([0.1, np.nan, 0.1, 0.1, 0.1, np.inf, np.inf], dtype)
    )


def test_linear_of_the_largest_numbers_does_not_overflow() -> None:
    most = np.finfo(np.float64).max
    found, _ = linear(
        np.array([[most, 0.0], [-most, most]]), np.array([0, 4]), np.array([1, 2]), None
    )
    expected = np.array([[most / 2, most / 4], [0, most / 2]])
    np.testing.assert_allclose(found, expected)


def about_z(degrees: float, order: str) -> list[float]:
    half = np.radians(degrees) / 2
    turned = {
        "xyzw": [0, 0, np.sin(half), np.cos(half)],
        "wxyz": [np.cos(half), 0, 0, np.sin(half)],
    }
    return [float(each) for each in turned[order]]


@pytest.mark.parametrize("order", ["xyzw", "wxyz"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rotations_turn_at_constant_speed_along_the_shorter_arc(order: Any, dtype: Any) -> None:
    turned = [about_z(0, order), [-x for x in about_z(90, order)], about_z(90, order)]
    result = aligned(
        [
            stream("rotation", [0, 90, 180], np.array(turned, dtype), quaternion=order),
            stream("clock", [0, 30, 45, 90, 135]),
        ],
        grid="clock",
        streams={"rotation": StreamPolicy(method="linear")},
    )
    expected = np.array([about_z(degrees, order) for degrees in (0, 30, 45, 90, 90)])
    found = result.features["rotation"]
    assert found.dtype == dtype
    exact = 1e-12 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(abs((found * expected).sum(axis=1)), 1, atol=exact)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=exact)
    np.testing.assert_array_equal(found[3], np.array(turned[1], dtype))


@settings(max_examples=150)
@given(
    axis=st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda a: np.linalg.norm(a) > 0.1),
    degrees=st.floats(-179, 179),
    share=st.integers(1, 99),
    sign=st.sampled_from([-1, 1]),
)
def test_a_turn_about_an_axis_is_divided_in_proportion(
    axis: tuple[float, float, float], degrees: float, share: int, sign: int
) -> None:
    unit = np.array(axis) / np.linalg.norm(axis)

    def turned(angle: float) -> NDArray[np.float64]:
        half = np.radians(angle) / 2
        return np.array([*unit * np.sin(half), np.cos(half)])

    one, other = turned(20), turned(20 + degrees) * sign
    found, _ = linear(
        np.array([one, other]), np.array([0, 100]), np.array([share]), None, rotation=True
    )
    np.testing.assert_allclose(found[0], turned(20 + degrees * share / 100), atol=1e-9)


def test_a_rotation_that_is_none_gives_no_number_between() -> None:
    values = np.array([[0.0, 0, 0, 0], [0, 0, 0, 1]])
    found, _ = linear(values, np.array([0, 10]), np.array([0, 5, 10]), None, rotation=True)
    np.testing.assert_array_equal(found[[0, 2]], values)
    assert np.isnan(found[1]).all()
