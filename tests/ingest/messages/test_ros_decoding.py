"""ROS messages against rosbags' own deserialiser: every type, both byte orders, both encodings."""

from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import EpisodeError
from ingest.messages.decode import decoder_of
from ingest.messages.log import Channel
from tests.ingest.messages.message_logs import (
    definition_of,
    payload,
    ros2_channel,
    with_types,
)

NAME = "robots_msgs/msg/All"
DEFINITION = """
std_msgs/Header header
bool flag
int8 a
uint8 b
int16 c
float64 d
uint16 e
int32 f
string text
uint32 g
int64 h
uint64 i
float32 j
float64[3] fixed
float64[] empty
uint8 after_empty
float32[] some
bool[] flags
string[] words
geometry_msgs/Pose pose
geometry_msgs/Point[] points
geometry_msgs/Vector3[2] pair
duration wait
string last
"""
VALUES: dict[str, Any] = {
    "header": {"stamp": {"sec": 12, "nanosec": 345}, "frame_id": "über"},
    "flag": True,
    "a": -5,
    "b": 200,
    "c": -3000,
    "d": 1.5e300,
    "e": 65000,
    "f": -(2**31),
    "text": "héllo",
    "g": 2**32 - 1,
    "h": -(2**62),
    "i": 2**64 - 1,
    "j": -0.5,
    "fixed": [1.0, np.inf, -2.0],
    "after_empty": 7,
    "some": [1.0, 2.0, 3.0],
    "flags": [True, False, True],
    "words": ["", "a", "longer word"],
    "pose": {"position": {"x": 1.0, "y": 2.0, "z": 3.0}, "orientation": {"w": 1.0}},
    "points": [{"x": 1.0, "y": 2.0}, {"z": 9.0}],
    "pair": [{"x": 4.0}, {"z": 5.0}],
    "wait": {"sec": -2, "nanosec": 500},
    "last": "end",
}


def flat(message: Any, path: str = "") -> dict[str, Any]:
    """What rosbags deserialised, as path -> value."""
    found: dict[str, Any] = {}
    for member in fields(message):
        if member.name == "__msgtype__":
            continue
        name = f"{path}.{member.name}" if path else member.name
        value = getattr(message, member.name)
        if type(value).__name__.endswith(("__Time", "__Duration")):
            found[name] = value.sec * 10**9 + value.nanosec
        elif hasattr(value, "__dataclass_fields__"):
            found |= flat(value, name)
        elif isinstance(value, list) and value and hasattr(value[0], "__dataclass_fields__"):
            rows = [flat(item, f"{name}[]") for item in value]
            found |= {key: [row[key] for row in rows] for key in rows[0]}
        else:
            found[name] = value
    return found


def channel(ros: int, schema: bytes, encoding: str) -> Channel:
    return ros2_channel(
        "/all",
        NAME,
        schema=schema,
        schema_encoding="ros1msg" if ros == 1 else "ros2msg",
        message_encoding=encoding,
    )


@pytest.mark.parametrize(("encoding", "little"), [("cdr", True), ("cdr", False), ("ros1", True)])
def test_every_type_is_as_rosbags_reads_it(encoding: str, *, little: bool) -> None:
    ros = 1 if encoding == "ros1" else 2
    types = with_types(NAME, DEFINITION, ros)
    data = payload(NAME, VALUES, types=types, encoding=encoding, little_endian=little)
    read = types.deserialize_ros1 if ros == 1 else types.deserialize_cdr
    expected = flat(read(data, NAME))
    decoder = decoder_of(channel(ros, definition_of(NAME, types=types, ros=ros), encoding))
    assert decoder.note == ""
    one = decoder.fields(data)
    gathered = decoder.gather()
    for _ in range(3):
        gathered.add(data)
    many = gathered.join()
    assert many.decoded.all()
    assert not many.refused
    assert set(one) == set(many.values) == set(expected)
    for path, value in expected.items():
        rows = many.values[path]
        assert len(rows) == 3, path
        if rows.dtype.kind in "mM":
            rows = rows.view(np.int64)
            assert int(np.asarray(one[path]).view(np.int64)) == value, path
        elif rows.dtype != object:
            assert rows.dtype.isnative
            np.testing.assert_array_equal(np.asarray(one[path]), np.asarray(value), path)
        else:
            assert list(np.atleast_1d(one[path])) == list(np.atleast_1d(value)), path
        for row in rows:
            np.testing.assert_array_equal(row, np.asarray(value), path)


IDL = """
=====
IDL: robots_msgs/msg/Arm
// generated from robots_msgs/msg/Arm.msg
#include "std_msgs/msg/Header.idl"
module robots_msgs {
  module msg {
    typedef double double__3[3];
    @verbatim (language="comment", text="An arm.")
    struct Arm {
      std_msgs::msg::Header header;
      double__3 force;
      sequence<string> name;
      sequence<double> position;
      octet mode;
    };
  };
};
=====
IDL: std_msgs/msg/Header
#include "builtin_interfaces/msg/Time.idl"
module std_msgs { module msg { struct Header {
  builtin_interfaces::msg::Time stamp; string frame_id; }; }; };
"""


def test_idl_reads_as_the_same_message_definition_does() -> None:
    name = "robots_msgs/msg/Arm"
    text = (
        "std_msgs/Header header\nfloat64[3] force\nstring[] name\nfloat64[] position\nbyte mode\n"
    )
    data = payload(
        name,
        {"force": [1, 2, 3], "name": ["a", "bc"], "position": [4, 5], "mode": 6},
        types=with_types(name, text),
    )
    by_idl = ros2_channel("/arm", name, schema=IDL.encode(), schema_encoding="ros2idl")
    found = decoder_of(by_idl).fields(data)
    assert list(found["force"]) == [1, 2, 3]
    assert list(found["position"]) == [4, 5]
    assert (found["name"], found["mode"]) == (["a", "bc"], 6)


def test_bytes_behind_the_last_field_are_not_looked_at() -> None:
    data = payload("sensor_msgs/msg/Temperature", {"temperature": 36.5}) + b"\0\0\x80?depth"
    gathered = decoder_of(ros2_channel("/t", "sensor_msgs/msg/Temperature")).gather()
    gathered.add(data)
    assert gathered.join().values["temperature"].tolist() == [36.5]


def test_types_of_ros_itself_need_no_definition() -> None:
    bare = {"schema": b"\n", "schema_encoding": ""}
    decoder = decoder_of(ros2_channel("/t", "std_msgs/String", **bare))
    assert decoder.fields(payload("std_msgs/msg/String", {"data": "hi"}))["data"] == "hi"
    assert "carries no definition of std_msgs/String" in decoder.note
    with pytest.raises(EpisodeError, match="type my_msgs/msg/Own is not defined"):
        decoder_of(ros2_channel("/t", "my_msgs/msg/Own", **bare))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (b"bool request\n---\nbool response\n", "cannot be parsed"),
        (b"wstring words\n", "not defined"),
        (b"float64 x\nOwn inner\n", "contains itself"),
        (b"missing_msgs/Other other\n", "missing_msgs/msg/Other is not defined"),
    ],
)
def test_a_definition_that_cannot_be_used_is_named(schema: bytes, words: str) -> None:
    with pytest.raises(EpisodeError, match=words) as caught:
        decoder_of(ros2_channel("/t", "my_msgs/msg/Own", schema=schema))
    assert caught.value.reason == "bad-schema"


@pytest.mark.parametrize(
    ("encoding", "schema_encoding", "reason"),
    [
        ("wrong_format", "ros2msg", "unknown-encoding"),
        ("", "", "unknown-encoding"),
        ("protobuf", "", "unknown-encoding"),
        ("flatbuffer", "flatbuffer", "unknown-encoding"),
    ],
)
def test_encodings_that_are_not_read_are_named(
    encoding: str, schema_encoding: str, reason: str
) -> None:
    strange = ros2_channel(
        "/t",
        "std_msgs/msg/String",
        message_encoding=encoding,
        schema_encoding=schema_encoding,
    )
    with pytest.raises(EpisodeError) as caught:
        decoder_of(strange)
    assert caught.value.reason == reason


def test_a_length_that_lies_allocates_nothing() -> None:
    decoder = decoder_of(ros2_channel("/t", "std_msgs/msg/Float64MultiArray"))
    data = bytearray(payload("std_msgs/msg/Float64MultiArray", {"data": [1.0, 2.0]}))
    data[12:16] = b"\xff\xff\xff\x7f"
    with pytest.raises(EpisodeError, match="announces 2147483647 elements"):
        decoder.fields(bytes(data))


def test_a_message_cut_short_is_told_and_the_others_kept() -> None:
    good = payload("sensor_msgs/msg/JointState", {"name": ["a"], "position": [1.0]})
    gathered = decoder_of(ros2_channel("/t", "sensor_msgs/msg/JointState")).gather()
    for data in (good, good[:-9], b"", good):
        gathered.add(data)
    block = gathered.join()
    assert block.decoded.tolist() == [True, False, False, True]
    assert block.values["position"].tolist() == [[1.0], [1.0]]
    assert block.damage


def test_messages_of_many_layouts_keep_their_order() -> None:
    words = ["", "a", "bb", "a", "ccc", "bb", "b"] * 5
    gathered = decoder_of(ros2_channel("/t", "std_msgs/msg/String")).gather()
    for word in words:
        gathered.add(payload("std_msgs/msg/String", {"data": word}))
    assert list(gathered.join().values["data"]) == words


@given(data=st.data())
@settings(max_examples=150)
def test_damaged_payloads_end_in_values_or_a_named_error(data: st.DataObject) -> None:
    whole = payload(NAME, VALUES, types=_TYPES)
    kind = data.draw(st.sampled_from(["cut", "flip", "random"]))
    if kind == "cut":
        damaged = whole[: data.draw(st.integers(0, len(whole)))]
    elif kind == "flip":
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        damaged = bytes(changed)
    else:
        damaged = data.draw(st.binary(max_size=400))
    with suppress(EpisodeError):
        _DECODER.fields(damaged)
    gathered = _DECODER.gather()
    for each in (whole, damaged, whole):
        gathered.add(each)
    block = gathered.join()
    assert block.decoded[[0, 2]].all()


_TYPES = with_types(NAME, DEFINITION)
_DECODER = decoder_of(channel(2, definition_of(NAME, types=_TYPES), "cdr"))
