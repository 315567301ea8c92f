from fractions import Fraction

import numpy as np
import pytest

from ingest.lerobot.frames import frame_numbers, frame_period_s, frame_range


def pts(
    frames: int, ticks: int = 512, start: int = 0
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (start + np.arange(frames) * ticks).astype(np.int64)


BASE = Fraction(1, 15360)  # 512 ticks are 1/30 s


@pytest.mark.parametrize("start", [0, 1024, -512, 10**9])
def test_starts_count_from_the_first_frame_wherever_pts_begin(start: int) -> None:
    span = frame_range(pts(120, start=start), BASE, 65 / 30, 120 / 30)
    assert (span.first, span.stop) == (65, 120)
    assert span.offset_s == pytest.approx(0, abs=1e-9)


def test_every_frame_is_found_from_its_float_time_in_a_long_file() -> None:
    ticks = pts(40_000)
    for number in [0, 1, 9_999, 20_001, 39_999]:
        for wobble in (-1e-4, 0, 1e-4):
            assert frame_range(ticks, BASE, number / 30 + wobble, None).first == number


def test_the_last_episode_ends_with_the_file() -> None:
    assert frame_range(pts(10), BASE, 4 / 30, None).stop == 10


@pytest.mark.parametrize("from_s", [10 / 30, 100.0])
def test_a_start_past_the_end_has_no_frames(from_s: float) -> None:
    span = frame_range(pts(10), BASE, from_s, None)
    assert span.first == span.stop == 10


def test_a_next_start_past_the_end_is_cut_to_the_file() -> None:
    span = frame_range(pts(10), BASE, 0.0, 12 / 30)
    assert (span.first, span.stop) == (0, 10)


def test_the_distance_to_the_grid_is_told() -> None:
    span = frame_range(pts(10), BASE, 3.4 / 30, None)
    assert span.first == 3
    assert span.offset_s == pytest.approx(0.4 / 30)


def test_variable_rate_is_matched_by_the_files_own_times() -> None:
    ticks = np.array([0, 100, 150, 900, 1000], np.int64)
    span = frame_range(ticks, Fraction(1, 1000), 0.15, 0.9)
    assert (span.first, span.stop) == (2, 3)


def test_one_frame_files() -> None:
    span = frame_range(pts(1), BASE, 0.0, None)
    assert (span.first, span.stop) == (0, 1)
    assert frame_period_s(pts(1), BASE) is None
    assert frame_period_s(pts(2), BASE) == pytest.approx(1 / 30)


def test_steps_without_frame_are_marked() -> None:
    assert frame_numbers(None, 5, 3).tolist() == [0, 1, 2, -1, -1]


@pytest.mark.parametrize(
    ("frame_index", "supply", "expected"),
    [
        ([0, 1, 2, 3], 4, [0, 1, 2, 3]),
        ([0, 1, 4, 5], 6, [0, 1, 4, 5]),  # rows were removed, frames were not
        ([0, 1, 4, 5], 4, [0, 1, 2, 3]),  # both were removed
        ([0, 1, 4, 9], 6, [0, 1, 2, 3]),  # numbers beyond the video
        ([3, 2, 1, 0], 6, [3, 2, 1, 0]),  # rows in another order
        ([1, 0, 2, 3], 4, [1, 0, 2, 3]),
        ([1, 0, 3, 2], 3, [1, 0, -1, 2]),  # and a frame short
        ([0, 1, 1, 2], 4, [0, 1, 2, 3]),  # a number twice
        ([-1, 0, 1, 2], 4, [0, 1, 2, 3]),
        ([2, 3, 4, 5], 4, [0, 1, 2, 3]),  # counting from elsewhere
    ],
)
def test_gaps_in_frame_index(frame_index: list[int], supply: int, expected: list[int]) -> None:
    assert frame_numbers(np.array(frame_index, np.int64), 4, supply).tolist() == expected
