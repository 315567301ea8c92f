"""Streams of several rates on one grid: what is kept, marked, left out and told."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.alignment.policy import StreamPolicy
from ingest.alignment.resample import NO_SAMPLE_NS
from ingest.errors import EpisodeError
from ingest.timed import TimedCamera, TimedValues
from lake.episode import CameraVideo
from tests.ingest.alignment.timed_streams import (
    MS,
    aligned,
    camera,
    details,
    reasons,
    steps_ms,
    stream,
)


def test_cameras_show_the_frame_at_or_before_each_step() -> None:
    result = aligned([stream("state", range(0, 100, 5))], [camera([0, 33, 66, 99])], grid="state")
    shown = result.cameras["top"].index.step_to_frame
    assert shown.tolist() == [time // 33 for time in range(0, 100, 5)]
    assert result.cameras["top"].index.packet_size.shape == (4,)


def test_a_stale_stream_is_marked_and_not_filled() -> None:
    result = aligned(
        [stream("state", [0, 10, 20, 30, 100, 110]), stream("clock", range(0, 120, 10))],
        grid="clock",
    )
    assert result.valid["state"].tolist() == [True] * 5 + [False] * 5 + [True] * 2
    assert np.isnan(result.features["state"][5:10]).all()
    told = details(result, "steps-without-sample")["state"]
    assert told.startswith("5 of 12 steps have no sample that is fresh enough, the oldest 60.0 ms")
    assert result.ages_ns["state"].tolist()[4:7] == [10 * MS, 20 * MS, 30 * MS]


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
    assert details(result, "dropped-steps") == {
        "state": "3 of 8 steps have no sample of it and are dropped"
    }
    with pytest.raises(EpisodeError, match="no step that is left has a sample") as caught:
        aligned(
            [stream("state", [90]), stream("clock", range(0, 80, 10))],
            grid="clock",
            streams={"state": StreamPolicy(method="drop")},
        )
    assert caught.value.reason == "nothing-left"


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
    assert "before sample 2 of 4" in details(result, "clock-reset")["imu"]
    assert [timing.stream for timing in result.timing] == ["imu", "state"]
    by_header = aligned(
        [broken, stream("state", [0, 10, 20, 30])], streams={"imu": StreamPolicy(clock="header")}
    )
    assert by_header.features["imu"].tolist() == [0, 1, 2, 3]


def test_a_stream_without_the_clock_is_left_out() -> None:
    result = aligned(
        [stream("a", [0, 10]), stream("b", [0, 10])], streams={"a": StreamPolicy(clock="header")}
    )
    assert reasons(result) == [("error", "a", "no-clock")]
    with pytest.raises(EpisodeError, match=r"no stream is left to align; left out: a \(no-clock\)"):
        aligned([stream("a", [0, 10])], clock="device")


def test_a_policy_for_a_stream_that_is_not_there_is_told() -> None:
    result = aligned([stream("imu", [0, 10])], streams={"imuu": StreamPolicy()})
    assert reasons(result) == [("warning", "imuu", "no-such-stream")]


def test_streams_of_one_name_are_numbered() -> None:
    result = aligned(
        [stream("top", [0, 10]), stream("top_2", [0, 10], [7.0, 8.0]), stream("top", [0, 10])],
        [camera([0, 10])],
    )
    assert list(result.cameras) == ["top"]
    assert sorted(result.features) == ["top_2", "top_3", "top_4"]
    assert result.features["top_2"].tolist() == [7, 8]
    assert sorted(details(result, "name-used-twice")) == ["top_3", "top_4"]
    assert set(result.ages_ns) == {"top", "top_2", "top_3", "top_4"}


@pytest.mark.parametrize(
    ("values", "about"),
    [
        (np.array([1, 2, 3]), {}),
        (np.array(["a", "b", "c"], object), {}),
        (np.array([0.0, 1.0, 0.0]), {"continuous": False}),
    ],
)
def test_what_is_not_continuous_is_never_mixed(values: NDArray[Any], about: dict[str, Any]) -> None:
    streams = [
        stream("x", [0, 10, 20], values, **about),
        stream("clock", [0, 5, 10]),
        stream("state", [0, 10]),
    ]
    linear = StreamPolicy(method="linear")
    result = aligned(streams, [camera([0, 10])], grid="clock", default=linear)
    assert result.features["x"].tolist() == [values[0], values[0], values[1]]
    assert result.features["state"].tolist() == [0, 0.5, 1]
    assert result.cameras["top"].index.step_to_frame.tolist() == [0, 0, 1]
    refused = aligned(
        streams, [camera([0, 10])], grid="clock", streams={"x": linear, "top": linear}
    )
    assert set(refused.features) == {"clock", "state"}
    assert not refused.cameras
    assert reasons(refused) == [("error", "top", "bad-policy"), ("error", "x", "bad-policy")]


def test_values_keep_type_and_bits_in_native_order() -> None:
    swapped = np.array([[1.5, -0.0], [np.nan, 2.5]], ">f4")
    result = aligned([stream("x", [0, 10], swapped), stream("n", [0, 10], np.array([1, 2], "u2"))])
    assert result.features["x"].dtype == np.dtype("=f4")
    assert result.features["x"].tobytes() == swapped.astype("=f4").tobytes()
    assert result.features["n"].dtype == np.uint16
    assert [(spec.name, spec.dtype) for spec in result.feature_specs] == [
        ("x", "float32"),
        ("n", "uint16"),
    ]


def test_cameras_that_gave_no_frame_are_left_out_and_lost_frames_told() -> None:
    result = aligned(
        [stream("state", [0, 10, 20])], [camera([0, 10, 20], frames=[-1, 0, -1]), empty()]
    )
    assert result.cameras["top"].index.step_to_frame.tolist() == [-1, 0, 0]
    assert result.ages_ns["top"].tolist() == [NO_SAMPLE_NS, 0, 10 * MS]
    assert steps_ms(result) == [0, 10, 20]
    assert ("error", "dark", "no-picture") in reasons(result)
    assert "2 of 3 stamps gave no frame" in details(result, "stamps-without-frame")["top"]
    assert {spec.name for spec in result.camera_specs} == {"top", "dark"}


def empty() -> TimedCamera:
    return camera([0, 10, 20], "dark", frames=[-1, -1, -1])


def test_ages_of_the_future_are_negative_and_of_nothing_unmistakable() -> None:
    result = aligned(
        [stream("x", [10, 21]), stream("clock", [0, 20])],
        grid="clock",
        span="all",
        streams={"x": StreamPolicy(method="nearest")},
    )
    assert result.ages_ns["x"].tolist() == [-10 * MS, -1 * MS]
    held = aligned([stream("x", [10, 21]), stream("clock", [0, 20])], grid="clock", span="all")
    assert held.ages_ns["x"].tolist() == [NO_SAMPLE_NS, 10 * MS]


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"clocks": {"header": np.array([0, 1 << 63 - 1], np.int64) - (1 << 62) - 5}}, "bad-clock"),
        ({"clocks": {"header": np.array([0.0, 1.0])}}, "bad-clock"),
        ({"clocks": {"log": np.zeros(3, np.int64)}}, "bad-clock"),
        ({"values": np.array(["a", 3], object)}, "unsupported-type"),
        ({"values": np.array(["a", "b"])}, "bad-spec"),
        ({"values": np.zeros((2, 3)), "quaternion": "xyzw"}, "bad-quaternion"),
        ({"values": np.zeros((2, 3)), "names": ("x", "y")}, "bad-spec"),
    ],
)
def test_streams_that_cannot_be_stored_are_refused_when_made(
    about: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EpisodeError) as caught:
        stream("x", [0, 10], **about)
    assert (caught.value.reason, caught.value.stream) == (reason, "x")


def test_no_sample_and_no_clock_are_refused() -> None:
    for clocks in ({}, {"log": np.zeros(0, np.int64)}):
        with pytest.raises(EpisodeError, match="no sample or no clock"):
            TimedValues(name="x", source_name="/x", clocks=clocks, values=np.zeros(0))


def test_frames_and_stamps_must_be_as_many() -> None:
    video = camera([0, 10]).video
    with pytest.raises(EpisodeError, match="for 2 samples"):
        TimedCamera(
            name="top",
            source_name="/top",
            clocks={"log": np.arange(3)},
            video=CameraVideo(index=video.index, payload=video.payload),
        )
