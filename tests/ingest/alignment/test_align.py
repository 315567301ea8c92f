"""Streams of several rates on one grid, against a loop that looks at one step at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingest.alignment.align import Aligned, align
from ingest.alignment.policy import AlignmentPolicy, Method, StreamPolicy
from ingest.errors import EpisodeError, IngestError
from ingest.timed import TimedCamera, TimedValues
from lake.episode import CameraVideo
from lake.video_encode import encode_frames
from tests.ingest.hdf5_files import pictures

MS = 1_000_000


def stream(name: str, stamps: Sequence[int], values: Any = None, **about: Any) -> TimedValues:
    """Stamps in ms; values count up where not given."""
    array = np.arange(len(stamps), dtype=np.float64) if values is None else np.asarray(values)
    clocks = {"log": np.array(stamps, np.int64) * MS, **about.pop("clocks", {})}
    return TimedValues(name=name, source_name=f"/{name}", clocks=clocks, values=array, **about)


def camera(stamps: Sequence[int], name: str = "top") -> TimedCamera:
    frames = np.arange(len(stamps), dtype=np.int32)
    video = encode_frames(pictures(len(stamps), height=16, width=16), fps=10, step_to_frame=frames)
    clocks = {"log": np.array(stamps, np.int64) * MS}
    return TimedCamera(name=name, source_name=f"/{name}", clocks=clocks, video=video)


def aligned(
    values: Sequence[TimedValues], cameras: Sequence[TimedCamera] = (), **policy: Any
) -> Aligned:
    return align(values, cameras, AlignmentPolicy(**policy), where="a.mcap", locator="a")


def reasons(result: Aligned) -> list[tuple[str, str, str]]:
    return [(found.severity, found.stream, found.reason) for found in result.findings]


_STAMPS = st.lists(st.integers(0, 60), min_size=1, max_size=12)


@settings(max_examples=150)
@given(
    stamps=_STAMPS,
    grid=st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True),
    age=st.one_of(st.none(), st.integers(0, 20)),
    method=st.sampled_from(["hold", "nearest"]),
)
def test_the_sample_of_a_step_is_what_a_plain_search_finds(
    stamps: list[int], grid: list[int], age: int | None, method: Method
) -> None:
    grid = sorted(grid)
    limit = age if age is not None else 10**6
    own = StreamPolicy(method=method, max_age_ns=limit * MS)
    result = aligned(
        [stream("x", stamps), stream("clock", grid)],
        grid="clock",
        span="all",
        streams={"x": own},
    )
    assert (result.timestamps_ns // MS).tolist() == grid
    arrived = sorted(range(len(stamps)), key=lambda n: (stamps[n], n))
    for step, time in enumerate(grid):
        before = [n for n in arrived if stamps[n] <= time]
        after = [n for n in arrived if stamps[n] > time]
        found = before[-1] if before else None
        if method == "nearest" and after:
            later = next(n for n in after if stamps[n] == stamps[after[0]])
            if found is None or stamps[later] - time < time - stamps[found]:
                found = later
        fresh = found is not None and abs(time - stamps[found]) <= limit
        valid = bool(result.valid.get("x", np.ones(len(grid), bool))[step])
        assert valid == fresh
        if fresh:
            assert result.features["x"][step] == found
        else:
            assert np.isnan(result.features["x"][step])
        if found is not None:
            assert result.ages_ns["x"][step] == (time - stamps[found]) * MS


@settings(max_examples=100)
@given(
    stamps=st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True), age=st.integers(0, 30)
)
def test_linear_is_what_interpolation_gives_where_both_sides_are_near(
    stamps: list[int], age: int
) -> None:
    stamps = sorted(stamps)
    numbers = np.array(stamps, np.float64) ** 2
    grid = list(range(41))
    own = StreamPolicy(method="linear", max_age_ns=age * MS)
    result = aligned(
        [stream("x", stamps, numbers), stream("clock", grid)],
        grid="clock",
        span="all",
        streams={"x": own},
    )
    for time in grid:
        before = max((s for s in stamps if s <= time), default=None)
        after = min((s for s in stamps if s >= time), default=None)
        near = (
            before is not None
            and after is not None
            and time - before <= age
            and after - time <= age
        )
        value = result.features["x"][time]
        if near:
            assert value == pytest.approx(np.interp(time, stamps, numbers))
        else:
            assert np.isnan(value)


def test_cameras_show_the_frame_at_or_before_each_step() -> None:
    result = aligned([stream("state", range(0, 100, 5))], [camera([0, 33, 66, 99])], grid="state")
    shown = result.cameras["top"].index.step_to_frame
    assert shown.tolist() == [time // 33 for time in range(0, 100, 5)]
    assert result.cameras["top"].index.packet_size.shape == (4,)


def test_the_grid_is_the_camera_s_inside_what_all_streams_cover() -> None:
    result = aligned(
        [stream("state", range(40, 200, 10)), stream("note", [0], np.array(["go"], object))],
        [camera([0, 33, 66, 99, 132, 300]), camera([0, 190], "slow")],
    )
    assert (result.timestamps_ns // MS).tolist() == [66, 99, 132]
    assert list(result.features["note"]) == ["go"] * 3
    assert result.fps == pytest.approx(1000 / 33)


@pytest.mark.parametrize(("fps", "expected"), [(10.0, [0, 100, 200]), (30.0, [0, 33, 66, 100])])
def test_a_rate_gives_whole_nanoseconds_without_drift(fps: float, expected: list[int]) -> None:
    result = aligned([stream("state", range(0, 3_600_000, 100))], grid_fps=fps)
    assert (result.timestamps_ns[: len(expected)] // MS).tolist() == expected
    hours = result.timestamps_ns[int(fps) * 3000]
    assert hours == 3000 * 1_000_000_000


def test_a_stale_stream_is_marked_and_not_filled() -> None:
    result = aligned(
        [stream("state", [0, 10, 20, 30, 100, 110]), stream("clock", range(0, 120, 10))],
        grid="clock",
    )
    assert result.valid["state"].tolist() == [True] * 5 + [False] * 5 + [True] * 2
    assert np.isnan(result.features["state"][5:10]).all()
    assert reasons(result) == [("warning", "state", "steps-without-sample")]
    assert "5 of 12 steps" in result.findings[0].detail


def test_numbers_and_texts_that_are_missing_are_zero_and_empty_and_marked() -> None:
    few = StreamPolicy(max_age_ns=1 * MS)
    result = aligned(
        [
            stream("count", [0, 50], np.array([3, 4])),
            stream("note", [0, 50], np.array(["a", "b"], object)),
            stream("clock", range(0, 60, 10)),
        ],
        grid="clock",
        streams={"count": few, "note": few},
    )
    assert result.features["count"].tolist() == [3, 0, 0, 0, 0, 4]
    assert list(result.features["note"]) == ["a", "", "", "", "", "b"]
    assert result.valid["note"].tolist() == [True, False, False, False, False, True]


def test_dropped_steps_leave_the_grid_and_are_counted() -> None:
    result = aligned(
        [stream("state", [0, 10, 60, 70]), stream("clock", range(0, 80, 10))],
        grid="clock",
        streams={"state": StreamPolicy(method="drop")},
    )
    assert (result.timestamps_ns // MS).tolist() == [0, 10, 20, 60, 70]
    assert "state" not in result.valid
    assert reasons(result) == [("warning", "state", "dropped-steps")]


@pytest.mark.parametrize("lag", [1, 3])
def test_a_lag_gives_the_action_of_a_later_step(lag: int) -> None:
    steps = list(range(0, 60, 10))
    result = aligned(
        [stream("action", steps, role="action"), stream("state", steps)],
        grid="state",
        action_lag_steps=lag,
    )
    action = result.features["action"]
    assert action[:-lag].tolist() == list(range(lag, 6))
    assert np.isnan(action[-lag:]).all()
    assert result.valid["action"].tolist() == [True] * (6 - lag) + [False] * lag
    assert result.features["state"].tolist() == list(range(6))


def test_backward_and_repeated_stamps_are_told_and_ordered() -> None:
    result = aligned(
        [stream("state", [0, 20, 10, 30, 30]), stream("clock", [0, 10, 20, 30])], grid="clock"
    )
    assert result.features["state"].tolist() == [0, 2, 1, 4]
    assert reasons(result) == [
        ("warning", "state", "backward-stamps"),
        ("warning", "state", "repeated-stamps"),
    ]


def test_a_clock_that_was_reset_loses_its_stream_alone() -> None:
    header = np.array([0, 10, 20, 30], np.int64) * MS
    broken = stream("imu", [5000, 5010, 0, 10], clocks={"header": header})
    result = aligned([broken, stream("state", [0, 10, 20, 30])])
    assert set(result.features) == {"state"}
    assert reasons(result) == [("error", "imu", "clock-reset")]
    by_header = aligned(
        [broken, stream("state", [0, 10, 20, 30])], streams={"imu": StreamPolicy(clock="header")}
    )
    assert by_header.features["imu"].tolist() == [0, 1, 2, 3]


def test_a_stream_without_the_clock_is_left_out() -> None:
    result = aligned(
        [stream("a", [0, 10]), stream("b", [0, 10])], streams={"a": StreamPolicy(clock="header")}
    )
    assert reasons(result) == [("error", "a", "no-clock")]
    with pytest.raises(EpisodeError, match="no stream is left"):
        aligned([stream("a", [0, 10])], clock="device")


@pytest.mark.parametrize(
    ("values", "about"),
    [
        (np.array([1, 2, 3]), {}),
        (np.array(["a", "b", "c"], object), {}),
        (np.array([0.0, 1.0, 0.0]), {"continuous": False}),
    ],
)
def test_what_is_not_continuous_is_never_mixed(values: NDArray[Any], about: dict[str, Any]) -> None:
    result = aligned(
        [stream("x", [0, 10, 20], values, **about), stream("clock", [0, 5, 10])],
        grid="clock",
        default=StreamPolicy(method="linear"),
    )
    assert "x" not in result.features
    assert ("error", "x", "bad-policy") in reasons(result)


@pytest.mark.parametrize("order", ["xyzw", "wxyz"])
def test_rotations_go_along_the_shorter_arc(order: Any) -> None:
    def about_z(degrees: float) -> list[float]:
        half = np.radians(degrees) / 2
        return {
            "xyzw": [0.0, 0.0, np.sin(half), np.cos(half)],
            "wxyz": [np.cos(half), 0.0, 0.0, np.sin(half)],
        }[order]

    turned = np.array([about_z(0), [-x for x in about_z(90)], about_z(90)])
    result = aligned(
        [
            stream("rotation", [0, 90, 180], turned, quaternion=order),
            stream("clock", [0, 30, 45, 90, 135]),
        ],
        grid="clock",
        streams={"rotation": StreamPolicy(method="linear")},
    )
    expected = np.array([about_z(degrees) for degrees in (0, 30, 45, 90, 90)])
    found = result.features["rotation"]
    np.testing.assert_allclose(abs((found * expected).sum(axis=1)), 1, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-12)


def test_streams_that_never_met_are_named() -> None:
    with pytest.raises(
        EpisodeError, match=r"b begins 0\.065 s after the last sample of a is fresh"
    ):
        aligned([stream("a", [0, 10, 20]), stream("b", [100, 110])])
    result = aligned([stream("a", [0, 10, 20]), stream("b", [100, 110])], span="all")
    assert not result.valid["b"].any()


def test_timing_tells_rates_gaps_and_how_clocks_run() -> None:
    log = np.arange(1000, dtype=np.int64) * 10 * MS
    header = 5_000 * MS + (log * (1 + 50e-6)).astype(np.int64)
    steady = TimedValues(
        name="imu", source_name="/imu", clocks={"log": log, "header": header}, values=np.zeros(1000)
    )
    (timing,) = aligned([steady]).timing
    assert timing.rate_hz == pytest.approx(100)
    assert (timing.period_ns, timing.max_gap_ns) == (10 * MS, 10 * MS)
    (offset,) = timing.offsets
    assert offset.drift_ppm == pytest.approx(50, abs=0.5)
    assert offset.offset_ns == pytest.approx(5_000 * MS + 250_000, abs=2000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"grid": "a", "grid_fps": 10.0},
        {"grid_fps": 0.0},
        {"action_lag_steps": -1},
    ],
)
def test_policies_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(IngestError):
        AlignmentPolicy(**wrong)


def test_a_policy_is_read_back_as_it_was_written() -> None:
    policy = AlignmentPolicy(
        grid="top", streams={"imu": StreamPolicy(method="linear", clock="header", max_age_ns=5)}
    )
    assert AlignmentPolicy.from_json(policy.to_json()) == policy


def test_a_policy_may_say_little_and_nothing_unknown() -> None:
    assert AlignmentPolicy.from_json('{"grid_fps": 20}') == AlignmentPolicy(grid_fps=20)
    for wrong in ("[]", "{", '{"fps": 20}', '{"default": {"method": "guess"}}', '{"streams": 3}'):
        with pytest.raises(IngestError):
            AlignmentPolicy.from_json(wrong)


def test_frames_and_stamps_must_be_as_many() -> None:
    video = camera([0, 10]).video
    with pytest.raises(EpisodeError, match="for 2 samples"):
        TimedCamera(
            name="top",
            source_name="/top",
            clocks={"log": np.arange(3)},
            video=CameraVideo(index=video.index, payload=video.payload),
        )
