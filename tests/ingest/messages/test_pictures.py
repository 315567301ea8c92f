"""Pictures of messages, by their content: colours, order, padding, bits."""

import base64
import io
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray
from PIL import Image

from ingest.messages.log import Message
from ingest.source import EpisodeReading
from lake.episode import CameraVideo
from tests.ingest.hdf5_files import jpeg, pictures
from tests.ingest.messages.message_logs import (
    at_steps,
    h264,
    header,
    json_channel,
    payload,
    protobuf_channel,
    read,
    ros2_channel,
    told,
)

STEPS = 7
HEIGHT, WIDTH = 16, 24
SEEN = pictures(STEPS, height=HEIGHT, width=WIDTH)
# One strong colour a picture: what is lossy changes it by little, and a mixed-up order by a lot.
FLAT = np.empty_like(SEEN)
FLAT[:] = [[[[200, 60 + 20 * n, 30]]] for n in range(STEPS)]
DEPTH = (np.arange(STEPS * HEIGHT * WIDTH).reshape(STEPS, HEIGHT, WIDTH) * 7).astype(np.uint16)


def shown(video: CameraVideo, pixels: str = "rgb24") -> list[NDArray[Any]]:
    """Every frame, decoded by the codec alone."""
    decoder = av.CodecContext.create(video.index.codec, "r")
    assert isinstance(decoder, VideoCodecContext)
    decoder.extradata = video.index.extradata or None
    decoder.thread_count = 1
    offsets = video.index.packet_offsets()
    frames: list[av.VideoFrame] = []
    for begin, end in pairwise(offsets.tolist()):
        packet = av.Packet(bytes(video.payload[begin:end]))
        packet.is_keyframe = not frames or video.index.codec in {"png", "mjpeg"}
        frames += decoder.decode(packet)
    return [frame.reformat(format=pixels).to_ndarray() for frame in frames + decoder.decode(None)]


def images(
    encoding: str,
    rows: NDArray[Any],
    /,
    *,
    padding: int = 0,
    big_endian: bool = False,
    **change: Any,
) -> list[Message]:
    """Pictures, rows padded with 255; `rows` is [T, H, bytes or numbers of a row]."""
    dtype = rows.dtype.newbyteorder(">" if big_endian else "<")
    data = np.ascontiguousarray(rows.reshape(len(rows), HEIGHT, -1).astype(dtype)).view(np.uint8)
    data = np.pad(data, ((0, 0), (0, 0), (0, padding)), constant_values=255)
    values = [
        {
            "header": header(n),
            "height": HEIGHT,
            "width": WIDTH,
            "encoding": encoding,
            "is_bigendian": int(big_endian),
            "step": data.shape[2],
            "data": picture.ravel(),
            **change,
        }
        for n, picture in enumerate(data)
    ]
    name = "sensor_msgs/msg/Image"
    return at_steps(ros2_channel("/cam", name), [payload(name, each) for each in values])


def camera(reading: EpisodeReading) -> CameraVideo:
    (video,) = reading.episode.cameras.values()
    return video


GREY = SEEN[..., 1]
ALPHA = np.concatenate([SEEN, np.full_like(SEEN[..., :1], 9)], axis=3)


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(
    ("encoding", "rows", "expected"),
    [
        ("rgb8", SEEN, SEEN),
        ("bgr8", SEEN[..., ::-1], SEEN),
        ("8UC3", SEEN[..., ::-1], SEEN),
        ("rgba8", ALPHA, SEEN),
        ("bgra8", ALPHA[..., [2, 1, 0, 3]], SEEN),
        ("mono8", GREY, np.repeat(GREY[..., None], 3, axis=3)),
        ("8UC1", GREY, np.repeat(GREY[..., None], 3, axis=3)),
    ],
)
def test_raw_pictures_are_kept_to_the_bit_on_request(
    tmp_path: Path,
    encoding: str,
    rows: NDArray[np.uint8],
    expected: NDArray[np.uint8],
    padding: int,
) -> None:
    reading = read(tmp_path, images(encoding, rows, padding=padding), images="png")
    assert told(reading) == []
    np.testing.assert_array_equal(shown(camera(reading)), expected)
    (spec,) = reading.episode.spec.cameras
    assert (spec.name, spec.height, spec.width, spec.is_depth) == ("cam", HEIGHT, WIDTH, False)


def test_raw_pictures_are_encoded_once_else(tmp_path: Path) -> None:
    video = camera(read(tmp_path, images("bgr8", FLAT[..., ::-1])))
    assert video.index.codec == "h264"
    assert "gop=15" in video.index.quality
    assert video.index.step_to_frame.tolist() == list(range(STEPS))
    assert np.abs(np.array(shown(video), np.int32) - FLAT).max() < 8


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize(("encoding", "is_depth"), [("16UC1", True), ("mono16", False)])
def test_sixteen_bits_stay_sixteen_bits(
    tmp_path: Path, encoding: str, *, is_depth: bool, big_endian: bool
) -> None:
    reading = read(tmp_path, images(encoding, DEPTH, padding=2, big_endian=big_endian))
    np.testing.assert_array_equal(shown(camera(reading), "gray16le"), DEPTH)
    assert reading.episode.spec.cameras[0].is_depth == is_depth


def test_depth_in_metres_keeps_every_bit(tmp_path: Path) -> None:
    metres = (DEPTH / 3).astype(np.float32)
    metres[0, 0, 0] = np.nan
    reading = read(tmp_path, images("32FC1", metres))
    stored = np.array(shown(camera(reading), "rgba"))
    np.testing.assert_array_equal(stored.view("<f4")[..., 0], metres)
    assert reading.episode.spec.cameras[0].is_depth
    assert "float32" in reading.episode.spec.conventions["cam.pixels"]


def mosaic(order: str) -> NDArray[np.uint8]:
    """What a sensor with this colour filter sees of `FLAT`."""
    found = np.empty((STEPS, HEIGHT, WIDTH), np.uint8)
    for place, colour in enumerate(order):
        y, x = divmod(place, 2)
        found[:, y::2, x::2] = FLAT[:, y::2, x::2, "rgb".index(colour)]
    return found


@pytest.mark.parametrize("order", ["rggb", "bggr", "gbrg", "grbg"])
def test_colour_filter_arrays_get_their_colours(tmp_path: Path, order: str) -> None:
    video = camera(read(tmp_path, images(f"bayer_{order}8", mosaic(order))))
    assert np.abs(np.array(shown(video), np.int32) - FLAT).max() < 8


def test_a_colour_filter_array_is_kept_to_the_bit_on_request(tmp_path: Path) -> None:
    reading = read(tmp_path, images("bayer_rggb8", mosaic("rggb")), images="png")
    np.testing.assert_array_equal(shown(camera(reading), "gray"), mosaic("rggb"))
    assert reading.episode.spec.conventions["cam.pixels"] == "colour filter array bayer_rggb8"


@pytest.mark.parametrize(
    ("encoding", "order"), [("yuv422", [1, 0, 3, 2]), ("yuv422_yuy2", [0, 1, 2, 3])]
)
def test_half_sampled_colours_are_shown_right(
    tmp_path: Path, encoding: str, order: list[int]
) -> None:
    """A red picture: Y 81, Cb 90, Cr 240 in BT.601; as Y Cb Y Cr put into the wanted order."""
    pair = np.array([81, 90, 81, 240], np.uint8)[order]
    rows = np.tile(pair, (STEPS, HEIGHT, WIDTH // 2))
    reading = read(tmp_path, images(encoding, rows), images="png")
    found = np.array(shown(camera(reading)), np.int32)
    assert np.abs(found - [255, 0, 0]).max() <= 3
    assert reading.episode.spec.conventions["cam.recorded_as"] == encoding


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": "nv12"}, "pixels in 'nv12'"),
        ({"step": 3}, "3 bytes a row"),
        ({"height": 17}, "for 24x17 pixels"),
        ({"width": 0}, "for 0x16 pixels"),
    ],
)
def test_pixels_that_cannot_be_read_are_told(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    other = at_steps(
        ros2_channel("/x", "std_msgs/msg/Float64"),
        [payload("std_msgs/msg/Float64", {"data": n}) for n in range(STEPS)],
    )
    reading = read(tmp_path, images("rgb8", SEEN, **change), other)
    assert told(reading) == [("cam", "bad-pictures")]
    assert words in str(reading.findings)
    assert reading.episode.features["x"].tolist() == list(range(STEPS))


def test_one_bad_picture_shows_nothing_and_the_others_stay(tmp_path: Path) -> None:
    rows = images("rgb8", SEEN)
    rows[2] = rows[2]._replace(payload=images("rgb8", SEEN, step=3)[2].payload)
    rows[4] = rows[4]._replace(payload=rows[4].payload[:-20])
    reading = read(tmp_path, rows, images="png")
    video = camera(reading)
    assert video.index.step_to_frame.tolist() == [0, 1, 1, 2, 2, 3, 4]  # the newest before it
    np.testing.assert_array_equal(shown(video), SEEN[[0, 1, 3, 5, 6]])
    assert ("cam", "bad-pictures") in told(reading, "warning")
    assert ("cam", "bad-messages") in told(reading, "warning")


def compressed(about: str, coded: list[bytes]) -> list[Message]:
    name = "sensor_msgs/msg/CompressedImage"
    rows = [
        {"header": header(n), "format": about, "data": np.frombuffer(data, np.uint8)}
        for n, data in enumerate(coded)
    ]
    return at_steps(ros2_channel("/cam", name), [payload(name, row) for row in rows])


def png(picture: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("about", ["jpeg", "bgr8; jpeg compressed bgr8", ""])
def test_jpegs_keep_their_bytes(tmp_path: Path, about: str) -> None:
    coded = [jpeg(picture) for picture in SEEN]
    video = camera(read(tmp_path, compressed(about, coded)))
    assert bytes(video.payload) == b"".join(coded)
    assert (video.index.codec, video.index.width, video.index.height) == ("mjpeg", WIDTH, HEIGHT)


def test_a_jpeg_cut_short_is_left_out(tmp_path: Path) -> None:
    coded = [jpeg(picture) for picture in SEEN]
    coded[3] = coded[3][:-30]
    reading = read(tmp_path, compressed("jpeg", coded))
    assert camera(reading).index.step_to_frame.tolist() == [0, 1, 2, 2, 3, 4, 5]
    assert "1 of 7 pictures cannot be taken and show nothing" in str(reading.findings)


@pytest.mark.parametrize("about", ["16UC1; compressedDepth png", "16UC1; compressedDepth"])
def test_compressed_depth_loses_its_header_alone(tmp_path: Path, about: str) -> None:
    coded = [struct.pack("<iff", 0, 0.0, 0.0) + png(picture) for picture in DEPTH]
    reading = read(tmp_path, compressed(about, coded))
    np.testing.assert_array_equal(shown(camera(reading), "gray16le"), DEPTH)
    assert reading.episode.spec.cameras[0].is_depth


def test_inverse_depth_is_kept_with_its_parameters(tmp_path: Path) -> None:
    coded = [struct.pack("<iff", 1, 1010.0, -99.5) + png(picture) for picture in DEPTH]
    reading = read(tmp_path, compressed("32FC1; compressedDepth png", coded))
    np.testing.assert_array_equal(shown(camera(reading), "gray16le"), DEPTH)
    fact = reading.episode.spec.conventions["cam.pixels"]
    assert fact == "inverse depth: metres = 1010 / (value - -99.5)"


def test_other_compressed_depth_is_refused(tmp_path: Path) -> None:
    coded = [struct.pack("<iff", 0, 0.0, 0.0) + b"RVL" + bytes(99)] * STEPS
    other = [payload("std_msgs/msg/Float64", {"data": n}) for n in range(STEPS)]
    reading = read(
        tmp_path,
        compressed("16UC1; compressedDepth rvl", coded),
        at_steps(ros2_channel("/x", "std_msgs/msg/Float64"), other),
    )
    assert told(reading) == [("cam", "bad-pictures")]
    assert "'16UC1; compressedDepth rvl' that is no PNG" in str(reading.findings)


def by_json(rows: list[dict[str, Any]], name: str) -> list[Message]:
    coded = [
        {**row, "data": base64.b64encode(row["data"]).decode(), "timestamp": {"sec": n, "nsec": 0}}
        for n, row in enumerate(rows)
    ]
    channel = json_channel("/cam", name, {} if name else None)
    return at_steps(channel, [json.dumps(row).encode() for row in coded])


def by_protobuf(rows: list[dict[str, Any]], name: str) -> list[Message]:
    kinds = {bytes: "bytes", str: "string", int: "int32"}
    fields = {"timestamp": "time", **{key: kinds[type(v)] for key, v in rows[0].items()}}
    channel, kind = protobuf_channel("/cam", name, {name.rpartition(".")[2]: fields})
    return at_steps(channel, [kind(**row).SerializeToString() for row in rows])


@pytest.mark.parametrize("write", [by_json, by_protobuf])
def test_pictures_of_foxglove(tmp_path: Path, write: Any) -> None:
    coded = [jpeg(picture) for picture in SEEN]
    rows = [{"data": data, "format": "jpeg"} for data in coded]
    video = camera(read(tmp_path, write(rows, "foxglove.CompressedImage")))
    assert bytes(video.payload) == b"".join(coded)
    raw = [
        {"data": s.tobytes(), "encoding": "rgb8", "width": WIDTH, "height": HEIGHT, "step": 72}
        for s in SEEN
    ]
    video = camera(read(tmp_path, write(raw, "foxglove.RawImage"), images="png"))
    np.testing.assert_array_equal(shown(video), SEEN)


def test_json_pictures_without_a_schema(tmp_path: Path) -> None:
    coded = [jpeg(picture) for picture in SEEN]
    rows = by_json([{"data": data, "format": "jpeg"} for data in coded], "")
    assert bytes(camera(read(tmp_path, rows)).payload) == b"".join(coded)
    texts = [json.dumps({"data": "1,2", "format": "csv"}).encode()] * 2
    reading = read(tmp_path, at_steps(json_channel("/table"), texts))
    assert list(reading.episode.features["table_format"]) == ["csv", "csv"]


@pytest.mark.parametrize("write", [by_json, by_protobuf])
@pytest.mark.parametrize(("codec", "about"), [("libx264", "h264"), ("libx265", "h265")])
def test_video_begins_at_a_key_frame(tmp_path: Path, write: Any, codec: str, about: str) -> None:
    seen = np.empty((STEPS + 1, 48, 64, 3), np.uint8)
    seen[:] = np.arange(20, 20 + 25 * len(seen), 25)[:, None, None, None]
    packets = h264(seen, codec=codec)
    rows = [{"data": packet, "format": about} for packet in packets[1:]]
    reading = read(tmp_path, write(rows, "foxglove.CompressedVideo"))
    index = camera(reading).index
    assert index.codec == {"h264": "h264", "h265": "hevc"}[about]
    assert index.step_to_frame.tolist() == [-1, -1, 0, 1, 2, 3, 4]
    assert ("cam", "no-key-frame") in told(reading, "warning")
    found = np.array(shown(camera(reading)), np.int32)
    means = np.abs(found.mean(axis=(1, 2, 3))[:, None] - seen.mean(axis=(1, 2, 3))).argmin(axis=1)
    assert means.tolist() == [3, 4, 5, 6, 7]


def test_video_of_ros(tmp_path: Path) -> None:
    packets = h264(pictures(STEPS, height=48, width=64))
    reading = read(tmp_path, compressed("h264", packets))
    assert camera(reading).index.step_to_frame.tolist() == list(range(STEPS))
    assert told(reading) == []


def test_video_that_is_not_read_is_named(tmp_path: Path) -> None:
    rows = by_json([{"data": b"\0\1\2", "format": "vp9"}] * 3, "foxglove.CompressedVideo")
    other = [payload("std_msgs/msg/Float64", {"data": n}) for n in range(3)]
    reading = read(tmp_path, rows, at_steps(ros2_channel("/x", "std_msgs/msg/Float64"), other))
    assert told(reading) == [("cam", "bad-pictures")]
    assert "codec vp9" in str(reading.findings)
