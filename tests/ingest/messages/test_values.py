"""Numbers and texts of messages as streams."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.alignment.policy import AlignmentPolicy
from tests.ingest.messages.message_logs import (
    START,
    STEP,
    at_steps,
    header,
    json_channel,
    payload,
    protobuf_channel,
    read,
    ros2_channel,
    told,
    with_types,
)

STEPS = 6
JOINTS = "sensor_msgs/msg/JointState"


def joint_states(orders: list[list[str]], **extra: Any) -> list[bytes]:
    """Joint `a` is at the step, `b` at 10 times, `c` at 100 times it."""
    scale = {"a": 1.0, "b": 10.0, "c": 100.0}
    return [
        payload(
            JOINTS,
            {
                "header": header(step),
                "name": names,
                "position": [scale.get(name, 0.0) * step for name in names],
                **extra,
            },
        )
        for step, names in enumerate(orders)
    ]


def test_joints_stay_in_the_order_of_the_first_message(tmp_path: Path) -> None:
    orders = [["a", "b", "c"], ["c", "a", "b"], ["a", "b", "c"], ["b", "a", "c"]]
    topic = ros2_channel("/joint_states", JOINTS)
    reading = read(tmp_path, at_steps(topic, joint_states(orders, effort=[1.0, 2.0, 3.0])))
    assert told(reading) == []
    episode = reading.episode
    np.testing.assert_array_equal(
        episode.features["joint_states_position"], [[n, 10.0 * n, 100.0 * n] for n in range(4)]
    )
    # Efforts were the same numbers for other orders of names.
    np.testing.assert_array_equal(
        episode.features["joint_states_effort"], [[1, 2, 3], [2, 3, 1], [1, 2, 3], [2, 1, 3]]
    )
    spec = episode.spec.feature("joint_states_position")
    assert (spec.names, spec.role, spec.dtype) == (("a", "b", "c"), "state", "float64")
    assert set(episode.features) == {"joint_states_position", "joint_states_effort"}
    assert episode.spec.conventions == {"joint_states.frame_id": "base"}


def test_other_joints_are_an_error_of_that_topic_alone(tmp_path: Path) -> None:
    good = ros2_channel("/cmd_vel", "geometry_msgs/msg/Twist")
    twists = [payload("geometry_msgs/msg/Twist", {"linear": {"x": float(n)}}) for n in range(3)]
    arms = joint_states([["a", "b"], ["a", "b"], ["a", "x"]])
    topic = ros2_channel("/joint_states", JOINTS)
    reading = read(tmp_path, at_steps(topic, arms), at_steps(good, twists))
    assert told(reading) == [("joint_states_position", "names-change")]
    assert "from message 2 on (a, x; before a, b)" in str(reading.findings)
    assert reading.episode.features["cmd_vel_linear"][:, 0].tolist() == [0.0, 1.0, 2.0]
    assert reading.episode.spec.feature("cmd_vel_linear").names == ("x", "y", "z")
    assert reading.episode.spec.feature("cmd_vel_linear").role == "action"


def test_lengths_that_change_are_an_error_of_that_stream_alone(tmp_path: Path) -> None:
    topic = ros2_channel("/joint_states", JOINTS)
    rows = [
        payload(JOINTS, {"name": ["a"], "position": [1.0], "velocity": [0.5] * (n % 2)})
        for n in range(4)
    ]
    reading = read(tmp_path, at_steps(topic, rows))
    assert told(reading) == [("joint_states_velocity", "ragged-stream")]
    assert "changes its shape from message to message: [0], [1]" in str(reading.findings)
    assert reading.episode.features["joint_states_position"].shape == (4, 1)


def test_poses_are_a_position_and_a_rotation(tmp_path: Path) -> None:
    name = "geometry_msgs/msg/PoseStamped"
    rows = [
        payload(
            name,
            {
                "header": header(n, "map", delay_ns=5_000_000),
                "pose": {
                    "position": {"x": n, "y": 2.0, "z": 3.0},
                    "orientation": {"z": np.sin(n / 10), "w": np.cos(n / 10)},
                },
            },
        )
        for n in range(STEPS)
    ]
    policy = AlignmentPolicy.from_json(
        '{"clock": "header", "grid_fps": 20, "default": {"method": "linear"}}'
    )
    reading = read(tmp_path, at_steps(ros2_channel("/ee", name), rows), alignment=policy)
    episode = reading.episode
    assert told(reading) == []
    assert episode.timestamps_ns[:3].tolist() == [
        START - 5_000_000 + n * STEP // 2 for n in range(3)
    ]
    np.testing.assert_allclose(episode.features["ee_pose_position"][1], [0.5, 2.0, 3.0])
    # Halfway along the arc: its length stays 1.
    np.testing.assert_allclose(
        episode.features["ee_pose_orientation"][1], [0, 0, np.sin(0.05), np.cos(0.05)], atol=1e-12
    )
    assert episode.spec.conventions["ee.frame_id"] == "map"


def test_scalars_side_by_side_are_a_vector_and_bare_data_has_the_topics_name(
    tmp_path: Path,
) -> None:
    name = "robots_msgs/msg/Gauge"
    types = with_types(name, "float32 low\nfloat32 high\nuint8 mode\nbool on\n")
    gauges = [
        payload(name, {"low": n, "high": n + 0.5, "mode": 3, "on": n > 2}, types=types)
        for n in range(STEPS)
    ]
    layout = {"dim": [{"label": "arm", "size": 2, "stride": 2}]}
    arrays = [
        payload("std_msgs/msg/Float64MultiArray", {"layout": layout, "data": [n, -n]})
        for n in range(STEPS)
    ]
    texts = [payload("std_msgs/msg/String", {"data": f"pick {n // 3}"}) for n in range(STEPS)]
    gauge = ros2_channel("/gauge", name, schema=types.generate_msgdef(name)[0].encode())
    reading = read(
        tmp_path,
        at_steps(gauge, gauges),
        at_steps(ros2_channel("/action", "std_msgs/msg/Float64MultiArray"), arrays),
        at_steps(ros2_channel("/instruction", "std_msgs/msg/String"), texts),
    )
    assert told(reading) == []
    episode = reading.episode
    assert {f.name: (f.dtype, f.shape, f.names) for f in episode.spec.features} == {
        "gauge": ("float32", (2,), ("low", "high")),
        "gauge_mode": ("uint8", (), None),
        "gauge_on": ("bool", (), None),
        "action": ("float64", (2,), None),
        "instruction": ("string", (), None),
    }
    assert episode.features["gauge_on"].tolist() == [False] * 3 + [True] * 3
    assert list(episode.features["instruction"]) == ["pick 0"] * 3 + ["pick 1"] * 3
    assert episode.instruction == "pick 0"
    assert '"dim[].label": ["arm"]' in episode.spec.conventions["action.layout"]


def test_frames_of_tf_are_streams_of_their_own(tmp_path: Path) -> None:
    def transform(child: str, step: int, parent: str = "world") -> dict[str, Any]:
        return {
            "header": header(step, parent),
            "child_frame_id": child,
            "transform": {"translation": {"x": step}, "rotation": {"w": 1.0}},
        }

    rows = [
        payload(
            "tf2_msgs/msg/TFMessage",
            {
                "transforms": [transform("hand", n)]
                + ([transform("Tool 0", -n)] if n % 2 == 0 else [])
                + [transform("lost", n, f"parent_{n // 4}")]
            },
        )
        for n in range(STEPS)
    ]
    reading = read(tmp_path, at_steps(ros2_channel("/tf", "tf2_msgs/msg/TFMessage"), rows))
    assert told(reading) == [("tf_lost", "frame-changes")]
    features = reading.episode.features
    np.testing.assert_array_equal(features["tf_hand_translation"][:, 0], np.arange(6.0))
    np.testing.assert_array_equal(features["tf_tool_0_translation"][:, 0], [0, 0, -2, -2, -4, -4])
    np.testing.assert_array_equal(features["tf_hand_rotation"], [[0, 0, 0, 1]] * STEPS)
    assert reading.episode.spec.conventions["tf_hand.frame_id"] == "world"


def test_topics_that_differ_in_case_alone_keep_both_streams(tmp_path: Path) -> None:
    rows = [payload("std_msgs/msg/Float64", {"data": n}) for n in range(3)]
    reading = read(
        tmp_path,
        at_steps(ros2_channel("/arm/pos", "std_msgs/msg/Float64"), rows),
        at_steps(ros2_channel("/Arm_Pos", "std_msgs/msg/Float64"), rows),
    )
    assert {f.name: f.source_name for f in reading.episode.spec.features} == {
        "arm_pos": "/arm/pos:data",
        "arm_pos_2": "/Arm_Pos:data",
    }


def test_json_has_numbers_texts_and_stamps(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
    rows = [
        {
            "timestamp": {"sec": (START + n * STEP) // 10**9, "nsec": (START + n * STEP) % 10**9},
            "joints": [n, n + 0.5],
            "count": n,
            "level": n or None,
            "on": n > 1,
            "note": "ok",
            "epoch_ns": START + n,
            "points": [{"x": n, "y": 1}, {"x": 2 * n, "y": 2}],
            "ragged": [0] * n,
        }
        for n in range(4)
    ]
    channel = json_channel("/state", "State", schema)
    policy = AlignmentPolicy(clock="header")
    reading = read(
        tmp_path,
        at_steps(channel, [json.dumps(row).encode() for row in rows]),
        alignment=policy,
    )
    episode = reading.episode
    assert told(reading) == [("state_ragged", "ragged-stream")]
    assert episode.timestamps_ns.tolist() == [START + n * STEP for n in range(4)]
    assert {f.name: (f.dtype, f.shape) for f in episode.spec.features} == {
        "state_joints": ("float64", (2,)),
        "state": ("int64", (2,)),
        "state_level": ("float64", ()),
        "state_on": ("bool", ()),
        "state_note": ("string", ()),
        "state_points": ("float64", (2, 2)),
    }
    np.testing.assert_array_equal(episode.features["state_level"], [np.nan, 1, 2, 3])
    np.testing.assert_array_equal(episode.features["state_points"][2], [[2, 1], [4, 2]])
    assert episode.spec.feature("state").names == ("count", "epoch_ns")
    assert episode.features["state"].tolist() == [[n, START + n] for n in range(4)]


def test_json_without_a_schema_and_one_bad_message(tmp_path: Path) -> None:
    rows = [b'{"x": 1, "y": 2}', b'{"x": 1', b"[[[", b'{"x": 3, "y": 4}', b"null"]
    reading = read(tmp_path, at_steps(json_channel("/mouse"), rows[:4]))
    assert told(reading, "warning")[0] == ("mouse", "bad-messages")
    assert "2 of 4 messages cannot be decoded" in str(reading.findings)
    np.testing.assert_array_equal(reading.episode.features["mouse"], [[1, 2], [3, 4]])


def test_protobuf_keeps_declared_types(tmp_path: Path) -> None:
    channel, kind = protobuf_channel(
        "/hand",
        "robots.Hand",
        {
            "Hand": {
                "timestamp": "time",
                "position": "repeated float",
                "tip": "Point",
                "rarely": "Point",
                "tips": "repeated Point",
                "contacts": "int32",
                "closed": "bool",
                "label": "string",
                "ragged": "repeated double",
            },
            "Point": {"x": "double", "y": "double"},
        },
    )
    rows = []
    for n in range(4):
        row = kind(position=[n, n + 0.5], contacts=n % 2, closed=n > 2, label="left")
        row.timestamp.seconds, row.timestamp.nanos = divmod(START + n * STEP, 10**9)
        row.tip.x = n
        row.tips.add(x=1, y=n)
        row.ragged.extend([0.0] * n)
        if n:
            row.rarely.x = 1.0
        rows.append(row.SerializeToString())
    reading = read(tmp_path, at_steps(channel, rows), alignment=AlignmentPolicy(clock="header"))
    episode = reading.episode
    assert sorted(told(reading)) == [
        ("hand_ragged", "ragged-stream"),
        ("hand_rarely_x", "ragged-stream"),
        ("hand_rarely_y", "ragged-stream"),
    ]
    assert episode.timestamps_ns.tolist() == [START + n * STEP for n in range(4)]
    assert {f.name: (f.dtype, f.shape) for f in episode.spec.features} == {
        "hand_position": ("float32", (2,)),
        "hand_tip": ("float64", (2,)),
        "hand_tips": ("float64", (1, 2)),
        "hand_contacts": ("int32", ()),
        "hand_closed": ("bool", ()),
        "hand_label": ("string", ()),
    }
    np.testing.assert_array_equal(episode.features["hand_tip"], [[n, 0] for n in range(4)])
    np.testing.assert_array_equal(episode.features["hand_contacts"], [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("size", "kept"), [(16_384, True), (16_385, False)], ids=["array", "cloud"]
)
def test_clouds_are_no_signals(tmp_path: Path, size: int, *, kept: bool) -> None:
    name = "std_msgs/msg/UInt8MultiArray"
    rows = [payload(name, {"data": np.zeros(size)})] * 2
    other = [payload("std_msgs/msg/Float64", {"data": n}) for n in range(2)]
    reading = read(
        tmp_path,
        at_steps(ros2_channel("/cloud", name), rows),
        at_steps(ros2_channel("/x", "std_msgs/msg/Float64"), other),
    )
    assert ("cloud" in reading.episode.features) == kept
    assert told(reading) == ([] if kept else [("cloud", "ragged-stream")])
