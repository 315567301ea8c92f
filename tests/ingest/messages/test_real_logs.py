"""Real recordings: every message, against independent readers."""

import io
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import NonSeekingReader
from mcap_ros2.decoder import DecoderFactory
from PIL import Image
from rosbags.rosbag1 import Reader as BagReader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from ingest.formats import detect
from ingest.messages.log import Message
from ingest.messages.mcap.log import open_mcap
from ingest.messages.pixels import pixel_format, read_pixels
from ingest.messages.ros1.bag import open_bag
from ingest.messages.ros2.bag import open_rosbag2
from ingest.messages.streams import TopicReader, TopicStreams
from ingest.pipeline import ingest_sources
from ingest.source import SourceOptions
from lake import Lake, read_frames, visible_episodes
from tests.ingest.messages.test_pictures import shown

MCAP = "mcap_rerun/rosbag2_2025_09_10-13_03_56_0.mcap"


def there(recordings: Path, name: str) -> Path:
    path = recordings / name
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


def messages(log: Any) -> tuple[list[Message], list[str]]:
    with closing(log):
        return list(log.messages()), [finding.reason for finding in log.findings()]


def topics(rows: list[Message]) -> dict[str, TopicStreams]:
    readers: dict[str, TopicReader] = {}
    for row in rows:
        topic = row.channel.topic
        if topic not in readers:
            readers[topic] = TopicReader(row.channel, "png")
        readers[topic].add(row)
    return {topic: reader.finish() for topic, reader in readers.items()}


@pytest.mark.parametrize(
    "name",
    [
        MCAP,
        "mcap_rerun/simple-protobuf.mcap",
        "mcap_rerun/simple_protobuf_vec3.mcap",
        "mcap_rerun/foxglove_log.mcap",
        "truncated_unindexed/test_sample.mcap",
        "rosbag2_mcap/talker/talker.mcap",
        "rosbag2_mcap/wbag/wbag_0.mcap",
        "rosbag2_mcap/cdr_test/cdr_test_0.mcap",
        "rosbag2_mcap/wrong_rmw_test/wrong_rmw_test_0.mcap",
        "mcap_conformance/TenMessages.mcap",
        "mcap_conformance/TenMessages-ch-chx-mx-pad-rch-rsh-st-sum.mcap",
        "mcap_conformance/OneAttachment.mcap",
    ],
)
def test_mcap_has_the_messages_of_its_library(recordings: Path, name: str) -> None:
    path = there(recordings, name)
    found, reasons = messages(open_mcap(path))
    with path.open("rb") as file:
        expected = [
            (channel.topic, m.log_time, m.publish_time, m.sequence, m.data)
            for _, channel, m in NonSeekingReader(file).iter_messages(log_time_order=False)
        ]
    assert [(m.channel.topic, *m[1:]) for m in found] == expected
    assert reasons == []


def test_every_topic_decodes_as_another_reader_has_it(recordings: Path) -> None:
    """About 30 types of sensor_msgs, by `mcap_ros2`."""
    path = there(recordings, MCAP)
    found, _ = messages(open_mcap(path))
    streams = {
        stream.source_name: stream for topic in topics(found).values() for stream in topic.values
    }
    seen: Counter[str] = Counter()
    compared = 0
    with path.open("rb") as file:
        reader = NonSeekingReader(file, decoder_factories=[DecoderFactory()])
        for _, channel, _, message in reader.iter_decoded_messages(log_time_order=False):
            number = seen[channel.topic]
            seen[channel.topic] += 1
            for stream in streams.values():
                topic, _, dotted = stream.source_name.partition(":")
                if topic == channel.topic and "[]" not in dotted:
                    compared += _compare(stream, number, message, dotted)
    assert compared > 500
    for topic, count in seen.items():
        lengths = {
            len(s.values) for s in streams.values() if s.source_name.partition(":")[0] == topic
        }
        assert lengths <= {count}


def _compare(stream: Any, number: int, message: Any, dotted: str) -> int:
    """A value against the attributes of mcap_ros2's message; how many were compared."""
    value = stream.values[number]
    expected: Any
    if stream.names is not None and dotted.rpartition(".")[2] not in {
        "position",
        "velocity",
        "effort",
    }:
        holder = message
        for part in dotted.split(".") if dotted else ():
            if not hasattr(holder, part):
                break  # named after the type of its members
            holder = getattr(holder, part)
        expected = [getattr(holder, member) for member in stream.names]
    else:
        expected = message
        for part in dotted.split("."):
            expected = getattr(expected, part)
        if hasattr(expected, "sec"):
            expected = expected.sec * 10**9 + expected.nanosec
        if isinstance(expected, bytes):
            expected = list(expected)
        if isinstance(value, str) and isinstance(expected, list):
            return 0  # a list of texts as JSON
    if isinstance(value, str):
        assert value == expected
    else:
        np.testing.assert_array_equal(np.asarray(value), np.asarray(expected, value.dtype))
    return 1


def test_pictures_of_a_real_mcap(recordings: Path) -> None:
    path = there(recordings, MCAP)
    found, _ = messages(open_mcap(path))
    streams = topics(found)
    (raw,) = streams["/image"].cameras
    (coded,) = streams["/compressed_image"].cameras
    with path.open("rb") as file:
        reader = NonSeekingReader(file, decoder_factories=[DecoderFactory()])
        decoded = {
            channel.topic: message
            for _, channel, _, message in reader.iter_decoded_messages(log_time_order=False)
            if "image" in channel.topic
        }
    image = decoded["/image"]
    pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, -1)[:, : image.width * 3]
    expected = pixels.reshape(image.height, image.width, 3)
    expected = expected[..., ::-1] if image.encoding == "bgr8" else expected
    np.testing.assert_array_equal(shown(raw.video)[0], expected)
    assert bytes(coded.video.payload) == decoded["/compressed_image"].data
    size = Image.open(io.BytesIO(decoded["/compressed_image"].data)).size
    assert (coded.video.index.width, coded.video.index.height) == size


@pytest.mark.parametrize(
    ("name", "count"),
    [("example.bag", 8647), ("example-bz2.bag", 8647), ("example-lz4.bag", 8647)],
)
def test_ros1_bags_have_the_messages_and_values_of_rosbags(
    recordings: Path, name: str, count: int
) -> None:
    path = there(recordings, f"ros1_bag_foxglove/{name}")
    found, reasons = messages(open_bag(path))
    assert (len(found), reasons) == (count, [])
    poses = topics([m for m in found if m.channel.topic == "/turtle1/pose"])["/turtle1/pose"]
    (stream,) = poses.values
    assert stream.names == ("x", "y", "theta", "linear_velocity", "angular_velocity")
    types = get_typestore(Stores.ROS1_NOETIC)
    with BagReader(path) as reader:
        expected = sorted((time, bytes(data)) for _, time, data in reader.messages())
        assert sorted((m.log_time_ns, m.payload) for m in found) == expected
        (connection,) = [c for c in reader.connections if c.topic == "/turtle1/pose"]
        types.register(get_types_from_msg(connection.msgdef.data, connection.msgtype))
        rows = [
            types.deserialize_ros1(data, connection.msgtype)
            for _, _, data in reader.messages([connection])
        ]
    wanted = [[getattr(row, member) for member in stream.names] for row in rows]
    np.testing.assert_array_equal(stream.values, np.array(wanted, np.float32))


@pytest.mark.parametrize(
    ("name", "count", "reasons"),
    [
        ("truncated_unindexed/test_sample.bag", 14, []),
        ("truncated_unindexed/test_unindexed.bag", 14, ["unindexed"]),
        ("truncated_unindexed/test_truncated.bag", 3, ["cut-short", "unindexed"]),
        ("truncated_unindexed/test_sample_truncated.mcap", 14, ["cut-short"]),
        ("ros1_bag_foxglove/no-messages.bag", 0, []),
        ("ros1_bag_foxglove/example-unsorted-chunks.bag", 3, []),
    ],
)
def test_damaged_and_odd_logs(recordings: Path, name: str, count: int, reasons: list[str]) -> None:
    path = there(recordings, name)
    found, told = messages(open_mcap(path) if path.suffix == ".mcap" else open_bag(path))
    assert (len(found), told) == (count, reasons)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("rosbag2_db3/wbag", 6074),
        ("rosbag2_mcap/wbag", 6074),
        ("rosbag2_db3/talker", 20),
        ("rosbag2_mcap/talker", 20),
        ("rosbag2_db3/empty_bag", 0),
        ("rosbag2_db3/reindex_test_bags/multiple_files", None),
        ("rosbag2_db3/chatter.db3", None),
    ],
)
def test_ros2_bags_have_every_message(recordings: Path, name: str, count: int | None) -> None:
    path = there(recordings, name)
    known = detect(path)
    assert known is not None
    assert known.name == "ros2-bag"
    found, reasons = messages(open_rosbag2(path))
    if count is None:
        files = [path] if path.is_file() else sorted(path.glob("*.db3"))
        count = 0
        for file in files:
            with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as db:
                count += db.execute("SELECT count(*) FROM messages").fetchone()[0]
    assert len(found) == count
    assert set(reasons) <= {"no-metadata"}


def test_split_bags_say_the_same_in_both_storages(recordings: Path) -> None:
    by_kind = []
    for kind in ("rosbag2_db3", "rosbag2_mcap"):
        found, _ = messages(open_rosbag2(there(recordings, f"{kind}/wbag")))
        texts = {topic: list(streams.values[0].values) for topic, streams in topics(found).items()}
        by_kind.append((sorted((m.channel.topic, m.payload) for m in found), texts))
    assert by_kind[0][0] == by_kind[1][0]
    assert by_kind[0][1].keys() == by_kind[1][1].keys()
    assert sum(map(len, by_kind[0][1].values())) == 6074


def test_a_realsense_bag_goes_in_with_its_depth_and_colours(recordings: Path, lake: Lake) -> None:
    path = there(recordings, "realsense_bag/single_depth_color_640x480.bag")
    (report,) = ingest_sources([path], lake, options=SourceOptions(images="png")).sources
    assert (report.written, report.quarantined, report.streams_quarantined) == (1, 0, 0), report
    found, _ = messages(open_bag(path))
    cameras = {
        topic: streams.cameras[0] for topic, streams in topics(found).items() if streams.cameras
    }
    depth = cameras["/device_0/sensor_0/Depth_0/image/data"]
    colour = cameras["/device_0/sensor_1/Color_0/image/data"]
    assert (depth.is_depth, colour.is_depth) == (True, False)
    types = get_typestore(Stores.ROS1_NOETIC)
    for camera, pixels in ((depth, "gray16le"), (colour, "rgb24")):
        rows = [m for m in found if m.channel.topic == camera.source_name]
        frames = shown(camera.video, pixels)
        assert len(rows) == len(frames)
        for row, frame in zip(rows, frames, strict=True):
            image: Any = types.deserialize_ros1(row.payload, "sensor_msgs/msg/Image")
            kind = pixel_format(image.encoding)
            np.testing.assert_array_equal(frame, read_pixels(vars(image), kind))
    (episode,) = visible_episodes(lake, ["episode_id"]).to_pylist()
    name = "device_0_sensor_1_color_0_image_data"
    last = read_frames(lake, episode["episode_id"], name, [1])[0]
    np.testing.assert_array_equal(np.moveaxis(last, 0, 2), shown(colour.video)[-1])


def test_depth_with_trailing_bytes_is_read(recordings: Path) -> None:
    """As RealSense's SDK writes it since 2019: rosbags refuses such messages."""
    path = there(recordings, "realsense_bag/single_depth_color_640x480.bag")
    found, _ = messages(open_bag(path))
    rows = [m for m in found if m.channel.topic.endswith("Depth_0/image/data")]
    longer = [row._replace(payload=row.payload + b"\x6f\x12\x83\x3a") for row in rows]
    plain, padded = (
        topics(each)[rows[0].channel.topic].cameras[0].video for each in (rows, longer)
    )
    assert bytes(plain.payload) == bytes(padded.payload)


@pytest.mark.parametrize(
    "folder",
    [
        "mcap_rerun",
        "rosbag2_db3",
        "rosbag2_mcap",
        "ros1_bag_foxglove",
        "truncated_unindexed",
        "mcap_conformance",
    ],
)
def test_every_file_goes_in_or_is_refused_with_the_reason(
    recordings: Path, lake: Lake, folder: str
) -> None:
    report = ingest_sources([there(recordings, folder)], lake)
    assert report.unrecognised == []
    refused = {
        "empty_bag": "empty-recording",
        "no-messages.bag": "empty-recording",
        "wrong_rmw_test": "nothing-left",
        "NoData-pad-st-sum.mcap": "empty-recording",
        "OneAttachment.mcap": "empty-recording",
        "OneMetadata.mcap": "empty-recording",
    }
    for source in report.sources:
        name = Path(source.source).name
        is_foreign = folder == "mcap_conformance"  # messages "a" of a schema "c"
        assert source.written == (0 if name in refused or is_foreign else 1), source
