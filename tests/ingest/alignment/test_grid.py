"""Which steps an episode has."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.alignment.policy import StreamPolicy
from ingest.errors import EpisodeError
from tests.ingest.alignment.timed_streams import (
    aligned,
    camera,
    details,
    reasons,
    steps_ms,
    stream,
)


def test_the_grid_is_the_camera_s_inside_what_all_streams_cover() -> None:
    result = aligned(
        [stream("state", range(40, 200, 10)), stream("note", [0], np.array(["go"], object))],
        [camera([0, 33, 66, 99, 132, 300]), camera([0, 190], "slow")],
    )
    assert steps_ms(result) == [66, 99, 132]
    assert list(result.features["note"]) == ["go"] * 3
    assert result.fps == pytest.approx(1000 / 33)
    assert ("warning", "top", "outside-overlap") in reasons(result)
    told = details(result, "outside-overlap")["top"]
    assert "3 of 6 samples" in told
    assert "2 before state begins" in told
    assert "1 after the last sample of state is fresh" in told


def test_all_of_the_time_is_kept_where_asked() -> None:
    result = aligned([stream("state", range(40, 200, 10))], [camera([0, 33, 66, 300])], span="all")
    assert steps_ms(result) == [0, 33, 66, 300]
    assert result.valid["state"].tolist() == [False, False, True, False]
    assert not details(result, "outside-overlap")


def test_a_stream_that_fell_silent_does_not_end_the_episode() -> None:
    result = aligned([stream("joy", [10, 20], role="other")], [camera(range(0, 300, 30))])
    assert steps_ms(result) == list(range(0, 300, 30))
    assert result.valid["joy"].tolist() == [False, True] + [False] * 8


def test_a_stream_that_meets_no_step_is_left_out_alone() -> None:
    result = aligned([stream("early", [0, 10, 20]), stream("state", range(500, 600, 10))])
    assert set(result.features) == {"state"}
    assert steps_ms(result) == list(range(500, 600, 10))
    assert ("error", "early", "no-step") in reasons(result)
    assert {spec.name for spec in result.feature_specs} == {"early", "state"}


@settings(max_examples=150)
@given(st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=6), min_size=1, max_size=4))
@example([[0, 20]])  # fresh until 50: half, to the nanosecond
def test_no_stream_can_take_all_time_from_the_others(streams: list[list[int]]) -> None:
    whole = [stream(f"x{number}", stamps) for number, stamps in enumerate(streams)]
    result = aligned([stream("clock", range(0, 101, 2)), *whole], grid="clock")
    grid, bounds = steps_ms(result), [(0, 100)]
    for stamps in map(sorted, streams):
        gaps = sorted(np.diff(sorted(set(stamps))).tolist())
        if not gaps:
            continue
        end = stamps[-1] + gaps[(len(gaps) - 1) // 2] * 3 / 2
        if min(end, 100) - stamps[0] >= 50:
            bounds.append((stamps[0], int(end)))
    begin, end = max(b for b, _ in bounds), min(e for _, e in bounds)
    assert grid == [time for time in range(0, 101, 2) if begin <= time <= end]


def test_a_grid_without_a_stamp_in_the_overlap_is_refused() -> None:
    with pytest.raises(EpisodeError, match=r"slow has no stamp in the 0\.025 s"):
        aligned(
            [stream("slow", [0, 40]), stream("x", range(5, 31, 5))],
            grid="slow",
            streams={"x": StreamPolicy(max_age_ns=0)},
        )


@pytest.mark.parametrize(("fps", "expected"), [(10.0, [0, 100, 200]), (30.0, [0, 33, 66, 100])])
def test_a_rate_gives_whole_nanoseconds_without_drift(fps: float, expected: list[int]) -> None:
    result = aligned([stream("state", range(0, 3_600_000, 100))], grid_fps=np.float64(fps))
    assert steps_ms(result)[: len(expected)] == expected
    assert result.timestamps_ns[int(fps) * 3000] == 3000 * 1_000_000_000
    assert result.fps == fps


@settings(max_examples=60)
@given(
    begin=st.integers(0, 1 << 60),
    fps=st.one_of(
        st.sampled_from([29.97, 30000 / 1001, 1 / 3, 0.001, 1.00001]), st.floats(0.01, 300)
    ),
    seconds=st.integers(1, 10),
)
def test_steps_at_a_rate_are_those_of_exact_fractions(begin: int, fps: float, seconds: int) -> None:
    stamps = np.linspace(0, seconds, 1000)
    clock = (stamps * 1e9).astype(np.int64) + begin
    many = stream("x", [0] * 1000, clocks={"log": clock})
    result = aligned([many], grid_fps=fps, default=StreamPolicy(max_age_ns=10**12))
    times, period = result.timestamps_ns - begin, 1_000_000_000 / Fraction(repr(fps))
    expected = np.array([int(k * period) for k in range(len(times))])
    assert abs(times - expected).max() <= 1
    assert 0 <= int(clock[-1]) - begin - int(times[-1]) <= period + 1


def test_a_damaged_stamp_does_not_make_a_billion_steps() -> None:
    with pytest.raises(EpisodeError, match="are their stamps damaged") as caught:
        aligned([stream("x", [0, 10, 2_000_000_000])], grid_fps=50.0)
    assert caught.value.reason == "too-many-steps"


def test_repeated_stamps_of_the_grid_are_one_step() -> None:
    result = aligned([stream("x", [0, 10, 10, 20])])
    assert steps_ms(result) == [0, 10, 20]
    assert result.features["x"].tolist() == [0, 2, 3]


def test_a_single_picture_is_no_grid() -> None:
    result = aligned([stream("joints", [0, 10, 20, 30])], [camera([15])])
    assert steps_ms(result) == [0, 10, 20, 30]
    assert result.cameras["top"].index.step_to_frame.tolist() == [-1, -1, 0, 0]
    alone = aligned([], [camera([15])])
    assert steps_ms(alone) == [15]


def test_without_cameras_the_action_gives_the_steps_and_a_name_is_looked_for() -> None:
    values = [stream("fast", range(0, 50, 5)), stream("action", [0, 20, 40], role="action")]
    assert steps_ms(aligned(values)) == [0, 20, 40]
    with pytest.raises(EpisodeError, match="there are fast, action") as caught:
        aligned(values, grid="top")
    assert caught.value.reason == "no-grid"
    assert steps_ms(aligned([stream("x", [7])])) == [7]
    assert aligned([stream("x", [7])]).fps is None
