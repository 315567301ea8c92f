"""Runs: whole groups of pictures near a length; long groups in equal parts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.runs import RUN_LENGTH, cut_runs, runs_of
from tests.packing.synthetic import spans_of_lengths


def run_lengths(groups: list[list[int]], run_steps: int) -> list[list[int]]:
    """Steps of each run of episodes with groups of these lengths."""
    lengths = [sum(episode) for episode in groups]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    begins = np.zeros(int(offsets[-1]), np.bool_)
    for at, episode in zip(offsets, groups, strict=False):
        begins[at + np.cumsum([0, *episode[:-1]])] = True
    runs = cut_runs(begins, offsets, run_steps)
    return [
        np.diff([*np.flatnonzero(runs[a:b]), b - a]).tolist() for a, b in pairwise(offsets.tolist())
    ]


@pytest.mark.parametrize(
    ("gop", "runs"),
    [
        (1, [8] * 15),
        (2, [8] * 15),
        (3, [9] * 13 + [3]),
        (5, [10] * 12),
        (10, [10] * 12),
        (12, [12] * 10),
        (15, [8, 7] * 8),
        (20, [10] * 12),
        (24, [12] * 10),
        (30, [10] * 12),
        (60, [12] * 10),
    ],
)
def test_runs_are_whole_groups_or_whole_parts_of_one(gop: int, runs: list[int]) -> None:
    groups = [gop] * (120 // gop)
    assert run_lengths([groups], RUN_LENGTH) == [runs]


def test_a_video_that_is_cut_inside_a_group_shifts_its_runs() -> None:
    assert run_lengths([[1, 2, 2, 2, 2, 2, 2, 2, 2]], 8) == [[7, 8, 2]]
    assert run_lengths([[17, 30, 13]], 8) == [[9, 8, 10, 10, 10, 7, 6]]


def test_irregular_key_frames_begin_runs_where_they_are() -> None:
    assert run_lengths([[3, 4, 2, 7, 1, 5]], 8) == [[7, 9, 6]]
    assert run_lengths([[2, 2, 26, 2, 2, 2]], 8) == [[4, 9, 9, 8, 6]]


def test_a_run_is_as_long_as_asked_and_of_one_episode() -> None:
    assert run_lengths([[1] * 5, [1] * 4], 3) == [[3, 2], [3, 1]]
    assert run_lengths([[2, 2], [7]], 1) == [[1, 1, 1, 1], [1] * 7]
    assert run_lengths([[9, 9]], 100) == [[18]]


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(1, 30),
)
def test_no_run_is_longer_than_half_as_much_again_beside_a_group(
    groups: list[list[int]], run_steps: int
) -> None:
    for episode, runs in zip(groups, run_lengths(groups, run_steps), strict=True):
        assert sum(runs) == sum(episode)
        starts = np.concatenate([[0], np.cumsum(episode)])
        for end in np.cumsum(runs).tolist():
            group = int(np.searchsorted(starts, end))
            inside = starts[group] != end
            # A run ends inside a group only where that group is longer than a run may be.
            assert not inside or episode[group - 1] > max(run_steps * 3 // 2, 1)


def test_spans_are_of_the_run_of_their_last_observed_step() -> None:
    steps = [0, 1, 3, 4, 7, 8, 0, 5]  # 2, 5 and 6 were refused
    spans = spans_of_lengths([1] * 8, episode=[0] * 6 + [1] * 2, step=steps)
    offsets = np.array([0, 9, 15], np.int64)
    begins = cut_runs(np.ones(15, np.bool_), offsets, 4)
    assert runs_of(spans, begins, offsets).tolist() == [0, 0, 0, 1, 1, 2, 3, 4]
    nothing = spans_of_lengths([])
    assert not len(runs_of(nothing, np.zeros(0, np.bool_), np.zeros(1, np.int64)))
