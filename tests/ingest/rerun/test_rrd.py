"""Rerun recordings: written by the SDK, and as they are when something is wrong."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import rerun as rr
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from ingest.alignment.policy import AlignmentPolicy
from ingest.errors import IngestError, SourceError
from ingest.formats import detect
from ingest.pipeline import ingest_sources
from ingest.rerun.file import extent, version_of
from ingest.rerun.source import RerunSource
from ingest.source import EpisodeReading, SourceOptions
from lake import Lake, read_frames, visible_episodes
from tests.ingest.hdf5_files import jpeg, pictures

_NS = 1_000_000_000
_START = 1_700_000_000 * _NS
STEPS = 6

Log = Callable[[Any, int], None]


def write(path: Path, *logs: Log, recording_id: str = "one") -> Path:
    """A step every 100 ms; each `log` logs what it likes at each."""
    recording = rr.RecordingStream("teleop", recording_id=recording_id)
    recording.save(str(path))
    for step in range(STEPS):
        recording.set_time("stamp", timestamp=np.datetime64(_START + step * _NS // 10, "ns"))
        recording.set_time("step", sequence=step)
        for log in logs:
            log(recording, step)
    recording.flush()
    del recording
    return path


def joints(recording: Any, step: int) -> None:
    recording.log("observation/joints", rr.Scalars([step, 2.0 * step]))
    recording.log("action/gripper", rr.Scalars(float(-step)))


BY_STAMP = AlignmentPolicy(clock="header")


def read(path: Path, **options: Any) -> EpisodeReading:
    source = RerunSource(path, SourceOptions(**{"alignment": BY_STAMP, **options}))
    try:
        return source.read(source.entries()[0])
    finally:
        source.close()


def errors(reading: EpisodeReading) -> list[tuple[str, str]]:
    return [(f.stream, f.reason) for f in reading.findings if f.severity == "error"]


def test_numbers_and_texts_come_as_logged(tmp_path: Path, lake: Lake) -> None:
    def note(recording: Any, step: int) -> None:
        if step in {0, 3}:
            recording.log("note", rr.TextLog(f"step {step}"))

    path = write(tmp_path / "a.rrd", joints, note)
    known = detect(path)
    assert known is not None
    assert known.name == "rerun"
    (report,) = ingest_sources([path], lake, options=SourceOptions(alignment=BY_STAMP)).sources
    assert report.written == 1, report
    (row,) = visible_episodes(lake, ["episode_id", "dataset", "num_steps"]).to_pylist()
    assert (row["dataset"], row["num_steps"]) == ("teleop", STEPS)
    episode = read(path).episode
    np.testing.assert_array_equal(
        episode.features["observation_joints"], [[n, 2.0 * n] for n in range(STEPS)]
    )
    np.testing.assert_array_equal(episode.features["action_gripper"], -np.arange(6.0))
    assert list(episode.features["note"]) == ["step 0"] * 3 + ["step 3"] * 3
    assert {f.name: f.role for f in episode.spec.features} == {
        "observation_joints": "state",
        "action_gripper": "action",
        "note": "language",
    }
    assert episode.timestamps_ns.tolist() == [_START + n * _NS // 10 for n in range(STEPS)]
    assert '"grid":null' in episode.provenance.alignment


def test_pictures_keep_their_bytes_and_colours(tmp_path: Path, lake: Lake) -> None:
    seen = pictures(STEPS, height=16, width=24)
    coded = [jpeg(picture) for picture in seen]
    depth = np.arange(STEPS * 16 * 24, dtype=np.uint16).reshape(STEPS, 16, 24) * 7

    def cameras(recording: Any, step: int) -> None:
        recording.log("raw", rr.Image(seen[step]))
        recording.log("bgr", rr.Image(seen[step][..., ::-1], color_model="BGR"))
        recording.log("grey", rr.Image(seen[step][..., 0], color_model="L"))
        recording.log("coded", rr.EncodedImage(contents=coded[step], media_type="image/jpeg"))
        recording.log("depth", rr.DepthImage(depth[step], meter=1000.0))

    path = write(tmp_path / "a.rrd", joints, cameras)
    ingest_sources([path], lake, options=SourceOptions(images="png", alignment=BY_STAMP))
    (row,) = visible_episodes(lake, ["episode_id"]).to_pylist()

    def shown(camera: str) -> NDArray[np.uint8]:
        return np.moveaxis(read_frames(lake, row["episode_id"], camera, range(STEPS)), 1, 3)

    np.testing.assert_array_equal(shown("raw"), seen)
    np.testing.assert_array_equal(shown("bgr"), seen)
    np.testing.assert_array_equal(shown("grey"), np.repeat(seen[..., :1], 3, axis=3))
    episode = read(path).episode
    assert bytes(episode.cameras["coded"].payload) == b"".join(coded)
    assert [camera.name for camera in episode.spec.cameras if camera.is_depth] == ["depth"]
    decoder = av.CodecContext.create("png", "r")
    assert isinstance(decoder, VideoCodecContext)
    sizes = episode.cameras["depth"].index.packet_size
    first = av.Packet(bytes(episode.cameras["depth"].payload[: sizes[0]]))
    (frame,) = decoder.decode(first) + decoder.decode(None)
    np.testing.assert_array_equal(frame.reformat(format="gray16le").to_ndarray(), depth[0])


def h264(count: int) -> list[bytes]:
    """Coded frames with headers before the key frames, each in a message of its own."""
    encoder = av.CodecContext.create("libx264", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = 64, 48, "yuv420p"
    # Key frames every third frame and nowhere else.
    encoder.options = {"g": "3", "bf": "0", "sc_threshold": "0", "tune": "zerolatency"}
    packets = []
    for picture in pictures(count):
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        packets += encoder.encode(frame.reformat(format="yuv420p"))
    packets += encoder.encode(None)
    return [bytes(packet) for packet in packets]


@pytest.mark.parametrize("first", [0, 1])
def test_a_video_stream_is_copied_from_its_first_key_frame_on(tmp_path: Path, first: int) -> None:
    packets = h264(STEPS + first)[first:]

    def video(recording: Any, step: int) -> None:
        recording.log("cam", rr.VideoStream(codec=rr.VideoCodec.H264, sample=packets[step]))

    index = read(write(tmp_path / "a.rrd", joints, video)).episode.cameras["cam"].index
    lost = 2 if first else 0  # up to the key frame that comes every third
    assert index.step_to_frame.tolist() == [-1] * lost + list(range(STEPS - lost))
    assert (index.codec, index.width, index.height) == ("h264", 64, 48)


def ragged(recording: Any, step: int) -> None:
    recording.log("ragged", rr.Scalars([1.0] * (1 + step % 2)))


def small(recording: Any, _step: int) -> None:
    recording.log("cam", rr.EncodedImage(contents=b"nothing", media_type="image/jpeg"))


def floats(recording: Any, _step: int) -> None:
    recording.log("cam", rr.Image(np.zeros((4, 4, 3), np.float32)))


def vp9(recording: Any, _step: int) -> None:
    recording.log("cam", rr.VideoStream(codec=rr.VideoCodec.VP9, sample=b"\0\1\2"))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (ragged, ("ragged", "ragged-stream")),
        (small, ("cam", "bad-pictures")),
        (floats, ("cam", "unknown-pixels")),
        (vp9, ("cam", "bad-pictures")),
    ],
)
def test_an_entity_that_is_wrong_is_left_out_and_told(
    tmp_path: Path, log: Log, expected: tuple[str, str]
) -> None:
    reading = read(write(tmp_path / "a.rrd", joints, log))
    assert errors(reading) == [expected]
    assert "observation_joints" in reading.episode.features


def test_what_was_logged_without_time_is_told(tmp_path: Path) -> None:
    def still(recording: Any, step: int) -> None:
        if step == 0:
            recording.log("map", rr.Image(pictures(1)[0]), static=True)

    reading = read(write(tmp_path / "a.rrd", joints, still))
    assert [f.reason for f in reading.findings if f.stream == "map"] == ["static-entity"]
    assert "Image:buffer was logged without a time" in "".join(f.detail for f in reading.findings)
    assert not reading.episode.cameras


def test_what_becomes_no_stream_is_told(tmp_path: Path) -> None:
    def points(recording: Any, step: int) -> None:
        recording.log("points", rr.Points3D([[step, 0, 0]]))

    reading = read(write(tmp_path / "a.rrd", joints, points))
    told = {(f.stream, f.reason) for f in reading.findings}
    assert ("points", "component-not-read") in told
    assert ("observation_joints", "timeline-not-kept") in told  # `step` counts


def test_facts_of_pictures_may_be_logged_once_and_for_all(tmp_path: Path) -> None:
    packets = h264(STEPS)

    def video(recording: Any, step: int) -> None:
        if step == 0:
            recording.log("cam", rr.VideoStream(codec=rr.VideoCodec.H264), static=True)
        recording.log("cam", rr.VideoStream.from_fields(sample=packets[step]))

    reading = read(write(tmp_path / "a.rrd", joints, video))
    assert errors(reading) == []
    assert reading.episode.cameras["cam"].index.num_frames == STEPS


def test_the_unit_of_depth_is_a_convention(tmp_path: Path) -> None:
    def depth(recording: Any, step: int) -> None:
        recording.log("depth", rr.DepthImage(np.full((4, 4), step, np.uint16), meter=1000.0))

    episode = read(write(tmp_path / "a.rrd", joints, depth)).episode
    assert episode.spec.conventions == {"depth.depth_per_metre": "1000"}


def test_a_rate_that_is_given_is_that_of_the_steps(tmp_path: Path) -> None:
    reading = read(write(tmp_path / "a.rrd", joints), fps=5.0)
    assert np.diff(reading.episode.timestamps_ns).tolist() == [_NS // 5] * 2
    assert reading.episode.fps == 5.0
    assert '"grid_fps":5.0' in reading.episode.provenance.alignment


@pytest.mark.parametrize("keep", [0.02, 0.4, 0.7, 0.95])
def test_a_file_cut_short_keeps_its_whole_messages(tmp_path: Path, keep: float) -> None:
    path = write(tmp_path / "a.rrd", joints)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    found = extent(path)
    assert found.is_cut
    before = extent(path).messages
    if before <= 2:  # what announces the recording, and no data
        with pytest.raises(IngestError, match=r"no whole message|no stream is left|no recording"):
            read(path)
        return
    source = RerunSource(path, SourceOptions())
    try:
        assert [finding.reason for finding in source.findings()] == ["cut-short"]
        assert source.read(source.entries()[0]).episode.num_steps == STEPS
    finally:
        source.close()


@pytest.mark.parametrize("at", [3, 13, 21, 97, 503, 2011])
def test_a_flipped_byte_ends_in_an_episode_or_a_named_error(tmp_path: Path, at: int) -> None:
    path = write(tmp_path / "a.rrd", joints)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0xFF
    path.write_bytes(bytes(data))
    if version_of(path) is None:
        assert detect(path) is None
        return
    with suppress(IngestError):
        read(path)


def test_old_layouts_are_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.rrd"
    path.write_bytes(b"RRF0\0\x16\0\0" + bytes(40))
    with pytest.raises(SourceError, match=r"Rerun 0\.22\.0, .*rerun rrd migrate"):
        RerunSource(path, SourceOptions())


def test_a_real_recording_has_every_row(recordings: Path) -> None:
    path = recordings / "rrd_lerobot_pr" / "data.rrd"
    if not path.is_file():
        pytest.skip(f"no {path}")
    reading = read(path, alignment=AlignmentPolicy())
    assert errors(reading) == []
    names = {feature.name for feature in reading.episode.spec.features}
    assert {"arm_gripper_pos", "action_arm_gripper_pos"} <= names
    assert len(names) == 27
    # 4,500 rows of each scalar; before the second row of the first of them not all have a sample.
    assert reading.episode.num_steps == 4499
    assert reading.episode.provenance.format == "rerun-0.26.2"
