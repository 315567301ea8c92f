"""ALOHA and ACT files."""

from pathlib import Path
from typing import Any

import av
import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.formats import discover
from ingest.hdf5.aloha import AlohaSource, recognises
from ingest.pipeline import ingest_sources
from ingest.source import EpisodeReading, SourceOptions
from lake import Lake, read_episode, read_frames, visible_episodes
from tests.ingest.hdf5_files import jpeg, pictures, write_aloha


def _read(root: Path, options: SourceOptions | None = None, number: int = 0) -> EpisodeReading:
    source = AlohaSource(root, options or SourceOptions())
    return source.read(source.entries()[number])


def test_values_equal_the_file_bit_for_bit(tmp_path: Path) -> None:
    arrays = write_aloha(tmp_path / "episode_0.hdf5")
    episode = _read(tmp_path).episode
    for path, name in (
        ("observations/qpos", "state"),
        ("observations/qvel", "qvel"),
        ("observations/effort", "effort"),
        ("action", "action"),
    ):
        assert episode.features[name].dtype == np.float64
        np.testing.assert_array_equal(episode.features[name], arrays[path])
    roles = {feature.name: feature.role for feature in episode.spec.features}
    assert roles == {"state": "state", "action": "action", "qvel": "other", "effort": "other"}


def test_raw_pictures_kept_as_png_are_bit_equal(tmp_path: Path, lake: Lake) -> None:
    arrays = write_aloha(tmp_path / "episode_0.hdf5")
    ingest_sources([tmp_path / "episode_0.hdf5"], lake, options=SourceOptions(images="png"))
    [episode_id] = visible_episodes(lake, ["episode_id"])["episode_id"].to_pylist()
    for camera in ("cam_high", "cam_low"):
        frames = read_frames(lake, episode_id, camera, range(12))
        expected = arrays[f"observations/images/{camera}"].transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(frames, expected)


def test_raw_pictures_encoded_once_say_so_and_stay_close(tmp_path: Path) -> None:
    arrays = write_aloha(tmp_path / "episode_0.hdf5")
    video = _read(tmp_path).episode.cameras["cam_high"]
    assert video.index.codec == "h264"
    assert "crf=18" in video.index.quality
    assert video.index.num_frames == len(arrays["action"])


def test_padded_jpegs_are_kept_without_their_padding(tmp_path: Path) -> None:
    write_aloha(tmp_path / "episode_0.hdf5", compress=True)
    reading = _read(tmp_path)
    video = reading.episode.cameras["cam_low"]
    expected = [jpeg(picture) for picture in pictures(12, seed=1)]
    assert video.index.packet_size.tolist() == [len(data) for data in expected]
    assert bytes(video.payload) == b"".join(expected)
    assert video.index.quality == ""
    assert not reading.findings or {f.reason for f in reading.findings} == {"rate-by-convention"}


def test_padded_jpegs_decode_as_plain_pyav_does(tmp_path: Path, lake: Lake) -> None:
    write_aloha(tmp_path / "episode_0.hdf5", compress=True, cameras=("cam_high",))
    ingest_sources([tmp_path], lake)
    [episode_id] = visible_episodes(lake, ["episode_id"])["episode_id"].to_pylist()
    frames = read_frames(lake, episode_id, "cam_high", [0, 5, 11])
    for got, step in zip(frames, (0, 5, 11), strict=True):
        decoder = av.CodecContext.create("mjpeg", "r")
        assert isinstance(decoder, av.VideoCodecContext)
        [frame] = decoder.decode(av.Packet(jpeg(pictures(12)[step])))
        np.testing.assert_array_equal(got, frame.to_ndarray(format="rgb24").transpose(2, 0, 1))


def test_wrong_compress_len_is_reported_and_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path, compress=True)
    with h5py.File(path, "r+") as file:
        file["compress_len"][0, 3] = 7
    reading = _read(tmp_path)
    lies = [f for f in reading.findings if f.reason == "wrong-compress-len"]
    assert [f.stream for f in lies] == ["cam_high"]
    assert bytes(reading.episode.cameras["cam_high"].payload) == b"".join(
        jpeg(picture) for picture in pictures(12, seed=0)
    )


def test_damaged_jpeg_leaves_out_only_its_camera(tmp_path: Path) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path, compress=True)
    with h5py.File(path, "r+") as file:
        row = file["observations/images/cam_high"][4]
        row[:4] = 0
        file["observations/images/cam_high"][4] = row
    reading = _read(tmp_path)
    assert set(reading.episode.cameras) == {"cam_low"}
    [error] = [f for f in reading.findings if f.severity == "error"]
    assert (error.reason, error.stream) == ("bad-pictures", "cam_high")
    assert "picture 4" in error.detail


def test_depth_keeps_all_sixteen_bits(tmp_path: Path) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path, steps=3, cameras=())
    depth = np.arange(3 * 48 * 64, dtype=np.uint16).reshape(3, 48, 64) * 7
    with h5py.File(path, "r+") as file:
        file["observations/depth/front"] = depth
    episode = _read(tmp_path).episode
    [camera] = episode.spec.cameras
    assert camera.is_depth
    video = episode.cameras["front"]
    decoder = av.CodecContext.create("png", "r")
    assert isinstance(decoder, av.VideoCodecContext)
    offsets = video.index.packet_offsets()
    for step in range(3):
        packet = av.Packet(bytes(video.payload[offsets[step] : offsets[step + 1]]))
        packet.is_keyframe = True  # else FFmpeg adds the picture to the one before
        [frame] = decoder.decode(packet)
        np.testing.assert_array_equal(frame.to_ndarray(), depth[step])


def test_rate_comes_from_the_user_then_the_file_then_convention(tmp_path: Path) -> None:
    write_aloha(tmp_path / "episode_0.hdf5", attributes={"fps": 20.0})
    assert _read(tmp_path).episode.fps == 20.0
    chosen = _read(tmp_path, SourceOptions(fps=25.0)).episode
    assert chosen.timestamps_ns[:3].tolist() == [0, 40_000_000, 80_000_000]
    other = tmp_path / "other"
    other.mkdir()
    write_aloha(other / "episode_0.hdf5")
    reading = _read(other)
    assert reading.episode.fps == 50.0
    assert "rate-by-convention" in {f.reason for f in reading.findings}


@pytest.mark.parametrize(
    ("stamps", "used"),
    [
        (np.array([10.0, 10.1, 10.35]), True),
        (np.full(3, 1_700_000_000, np.float32), False),
        (np.array([1.0, 0.5, 2.0]), False),
        (np.array([0.0, np.nan, 2.0]), False),
    ],
)
def test_stored_stamps_are_the_grid_only_where_they_increase(
    tmp_path: Path, stamps: NDArray[Any], *, used: bool
) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path, steps=3, cameras=())
    with h5py.File(path, "r+") as file:
        file["timestamp"] = stamps
    reading = _read(tmp_path)
    reasons = {f.reason for f in reading.findings}
    if used:
        assert reading.episode.timestamps_ns.tolist() == [
            10_000_000_000,
            10_100_000_000,
            10_350_000_000,
        ]
        assert "unusable-timestamps" not in reasons
    else:
        assert reading.episode.timestamps_ns.tolist() == [0, 20_000_000, 40_000_000]
        assert "unusable-timestamps" in reasons
    np.testing.assert_array_equal(reading.episode.features["timestamp"], stamps)


def test_labels_come_from_attributes(tmp_path: Path) -> None:
    write_aloha(
        tmp_path / "episode_0.hdf5",
        attributes={
            "instruction": "lift the cup",
            "success": np.bool_(True),
            "embodiment": "vx300s",
            "sim": True,
        },
    )
    episode = _read(tmp_path).episode
    assert (episode.instruction, episode.success, episode.embodiment) == (
        "lift the cup",
        True,
        "vx300s",
    )
    assert episode.tags == ("sim",)
    assert _read(tmp_path, SourceOptions(embodiment="mine")).episode.embodiment == "mine"


def test_a_camera_that_ends_early_leaves_steps_without_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path)
    with h5py.File(path, "r+") as file:
        short = file["observations/images/cam_low"][:9]
        del file["observations/images/cam_low"]
        file["observations/images/cam_low"] = short
    episode = _read(tmp_path).episode
    assert episode.cameras["cam_low"].index.step_to_frame.tolist() == [*range(9), -1, -1, -1]


def test_streams_of_another_length_are_left_out_by_name(tmp_path: Path) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path)
    with h5py.File(path, "r+") as file:
        file["observations/extra"] = np.zeros((13, 2))
        file["observations/none"] = np.zeros((12, 0))
        long = np.concatenate([file["observations/images/cam_low"][:]] * 2)
        del file["observations/images/cam_low"]
        file["observations/images/cam_low"] = long
    reading = _read(tmp_path)
    left_out = {f.stream: f.reason for f in reading.findings if f.severity == "error"}
    assert left_out == {
        "extra": "length-differs",
        "none": "empty-stream",
        "cam_low": "more-pictures-than-steps",
    }
    assert set(reading.episode.features) == {"state", "qvel", "effort", "action"}


def test_damaged_files_of_a_folder_are_refused_alone(tmp_path: Path, lake: Lake) -> None:
    for number in range(4):
        write_aloha(tmp_path / f"episode_{number}.hdf5", seed=number, cameras=())
    whole = (tmp_path / "episode_1.hdf5").read_bytes()
    (tmp_path / "episode_1.hdf5").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "episode_2.hdf5").write_bytes(b"")
    report = ingest_sources([tmp_path], lake)
    [source] = report.sources
    assert (source.written, source.quarantined) == (2, 2)
    rows = lake.dataset("quarantine").to_table().to_pylist()
    assert {row["episode"]: row["reason"] for row in rows} == {
        "episode_1": "damaged-file",
        "episode_2": "empty-file",
    }
    assert ingest_sources([tmp_path], lake).sources[0].present == 2


def test_a_file_without_actions_is_an_episode_error(tmp_path: Path) -> None:
    write_aloha(tmp_path / "episode_0.hdf5", cameras=())
    write_aloha(tmp_path / "episode_1.hdf5", cameras=())
    with h5py.File(tmp_path / "episode_1.hdf5", "r+") as file:
        del file["action"]
        file["action"] = 3.0
    source = AlohaSource(tmp_path, SourceOptions())
    with pytest.raises(EpisodeError, match=r"episode_1\.hdf5: no dataset /action"):
        source.read(source.entries()[1])


def test_natural_order_and_one_source_per_folder(tmp_path: Path) -> None:
    for number in (0, 1, 2, 10, 11):
        write_aloha(tmp_path / f"episode_{number}.hdf5", steps=2, cameras=())
    [found] = discover(tmp_path).sources
    source = found.format.open(found.path, SourceOptions())
    assert [entry.locator for entry in source.entries()] == [
        f"episode_{number}" for number in (0, 1, 2, 10, 11)
    ]


def test_foreign_files_are_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.hdf5").write_bytes(b"not hdf5 at all")
    (tmp_path / "b.hdf5").write_bytes(b"")
    with h5py.File(tmp_path / "c.hdf5", "w") as file:
        file["other"] = np.zeros(3)
    assert [recognises(tmp_path / name) for name in ("a.hdf5", "b.hdf5", "c.hdf5")] == [False] * 3
    assert not recognises(tmp_path)
    assert not recognises(tmp_path / "missing")


def test_same_names_in_different_groups_do_not_collide(tmp_path: Path) -> None:
    path = tmp_path / "episode_0.hdf5"
    write_aloha(path, cameras=())
    with h5py.File(path, "r+") as file:
        file["left/force"] = np.zeros((12, 2))
        file["right/force"] = np.ones((12, 2))
    episode = _read(tmp_path).episode
    assert episode.features["left_force"].sum() == 0
    assert episode.features["right_force"].sum() == 24


def test_read_back_from_the_lake_is_what_was_read(tmp_path: Path, lake: Lake) -> None:
    write_aloha(tmp_path / "episode_0.hdf5", compress=True)
    ingest_sources([tmp_path], lake)
    direct = _read(tmp_path).episode
    [episode_id] = visible_episodes(lake, ["episode_id"])["episode_id"].to_pylist()
    stored = read_episode(lake, episode_id)
    assert stored.content_sha256() == direct.content_sha256()
