"""Pictures and depth of RLDS episodes."""

from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from ingest.pipeline import ingest_sources
from ingest.rlds.source import RldsSource
from ingest.source import SourceOptions
from lake import Lake, read_frames, visible_episodes
from tests.ingest.hdf5_files import pictures
from tests.ingest.rlds_files import (
    depth_of,
    episode,
    image,
    png,
    read_one,
    tensor,
    told,
    tree,
    write_dataset,
)


def test_jpegs_stay_byte_for_byte_and_in_order(tmp_path: Path) -> None:
    example = episode()
    video = read_one(tmp_path, example).episode.cameras["image"]
    assert bytes(video.payload) == b"".join(example["steps/observation/image"])
    assert video.index.codec == "mjpeg"
    assert video.index.step_to_frame.tolist() == list(range(6))


def test_depth_keeps_its_16_bits(tmp_path: Path) -> None:
    found = read_one(tmp_path, episode()).episode
    [camera] = [c for c in found.spec.cameras if c.is_depth]
    video = found.cameras[camera.name]
    assert video.index.pix_fmt == "gray16be"
    for data, expected in zip(_packets(video), depth_of(6), strict=True):
        np.testing.assert_array_equal(_decode(data, "gray16le"), expected)


def _packets(video: Any) -> list[bytes]:
    stops = np.cumsum(video.index.packet_size)
    return [
        bytes(video.payload[stop - size : stop])
        for stop, size in zip(stops, video.index.packet_size, strict=True)
    ]


def _decode(data: bytes, pix_fmt: str) -> NDArray[Any]:
    decoder = av.CodecContext.create("png", "r")
    assert isinstance(decoder, av.VideoCodecContext)
    [picture] = decoder.decode(av.Packet(data)) + decoder.decode(None)
    return picture.to_ndarray(format=pix_fmt)


def test_tensors_of_pixels_become_cameras(tmp_path: Path, lake: Lake) -> None:
    seen = pictures(6, height=16, width=24)
    example = episode() | {
        "steps/observation/raw": seen,
        "steps/observation/range": depth_of(6),
    }
    more = {"raw": tensor("uint8", 16, 24, 3), "range": tensor("uint16", 16, 24, 1)}
    write_dataset(tmp_path, [example], features=tree(observation=more))
    ingest_sources([tmp_path], lake, options=SourceOptions(images="png"))
    [episode_id] = visible_episodes(lake, ["episode_id"])["episode_id"].to_pylist()
    frames = read_frames(lake, episode_id, "raw", range(6))
    np.testing.assert_array_equal(frames, seen.transpose(0, 3, 1, 2))
    source = RldsSource(tmp_path, SourceOptions())
    found = source.read(source.entries()[0]).episode
    assert "crf=" in found.cameras["raw"].index.quality
    for data, expected in zip(_packets(found.cameras["range"]), depth_of(6), strict=True):
        np.testing.assert_array_equal(_decode(data, "gray16le"), expected)


def test_float_depth_as_tfds_packs_it_is_told(tmp_path: Path) -> None:
    meters = np.linspace(0.1, 3, 6 * 16 * 24, dtype=np.float32).reshape(6, 16, 24)
    packed = [png(m.view(np.uint8).reshape(16, 24, 4)) for m in meters]
    reading = read_one(
        tmp_path,
        episode() | {"steps/observation/metric": packed},
        features=tree(observation={"metric": image("float32", "png", 16, 24, 1)}),
    )
    assert told(reading, "info")["metric"] == "float-pictures"
    video = reading.episode.cameras["metric"]
    for data, expected in zip(_packets(video), meters, strict=True):
        rgba = np.ascontiguousarray(_decode(data, "rgba"))
        np.testing.assert_array_equal(rgba.view(np.float32)[..., 0], expected)


def test_pictures_that_never_change_and_flags_that_deny_them_are_told(tmp_path: Path) -> None:
    example = episode() | {"episode_metadata/has_image": np.array([False])}
    example["steps/observation/image"] = example["steps/observation/image"][:1] * 6
    reading = read_one(tmp_path, example)
    reasons = {f.reason for f in reading.findings if f.stream == "image"}
    assert reasons == {"constant-pictures", "flag-differs"}
    assert reading.episode.cameras["image"].index.num_frames == 6


def test_a_step_without_a_picture_is_marked(tmp_path: Path) -> None:
    example = episode()
    example["steps/observation/image"][2] = b""
    video = read_one(tmp_path, example).episode.cameras["image"]
    assert video.index.step_to_frame.tolist() == [0, 1, -1, 2, 3, 4]
