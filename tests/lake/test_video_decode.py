"""Decoders are reused without one run leaving a trace in another."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import xxhash

from lake.episode import CameraVideo
from lake.errors import CorruptDataError, VideoError
from lake.video_decode import FrameDecoder
from lake.video_file import VideoFile
from lake.video_runs import DecodeRun, decode_runs
from tests.lake.video_clips import fingerprint, plain_decode, steps, write_clip

_SOURCES = {
    "h264.mp4": ("libx264", {"g": "10", "bf": "3", "x264-params": "open-gop=1"}, (48, 64)),
    "small.mp4": ("libx264", {"g": "5", "bf": "2"}, (16, 32)),
    "hevc.mp4": ("libx265", {"x265-params": "keyint=10:bframes=3"}, (48, 64)),
    "av1.mkv": ("libsvtav1", {"g": "10", "preset": "12", "svtav1-params": "lp=1"}, (64, 64)),
    "mpeg4.mp4": ("mpeg4", {"g": "10", "bf": "2"}, (48, 64)),
    "mjpeg.mkv": ("mjpeg", {}, (48, 64)),
}


@pytest.fixture(scope="module")
def cameras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[CameraVideo, list[str]]]:
    """Whole clips as cameras, with the fingerprints of their frames."""
    folder = tmp_path_factory.mktemp("cameras")
    made = {}
    for name, (codec, options, size) in _SOURCES.items():
        pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        path = write_clip(folder / name, codec, options, size=size, pix_fmt=pix_fmt)
        with VideoFile(path) as file:
            made[name] = file.cut(0, file.num_frames, steps(file.num_frames)), plain_decode(path)
    return made


def _run(video: CameraVideo, frames: list[int]) -> tuple[DecodeRun, memoryview]:
    (run,) = decode_runs(video.index, frames)
    offsets = video.index.packet_offsets()
    return run, memoryview(video.payload)[offsets[run.first_packet] : offsets[run.stop_packet]]


def test_one_decoder_for_every_camera_in_any_order(
    cameras: dict[str, tuple[CameraVideo, list[str]]],
) -> None:
    decoder = FrameDecoder()
    random = np.random.default_rng(0)
    names = list(cameras)
    for _ in range(60):
        video, truth = cameras[names[random.integers(len(names))]]
        frame = int(random.integers(0, 40))
        run, data = _run(video, [frame])
        ((ordinal, picture),) = decoder.decode(video.index, run, data)
        assert (ordinal, fingerprint(picture)) == (frame, truth[frame])


def test_frames_come_in_display_order(cameras: dict[str, tuple[CameraVideo, list[str]]]) -> None:
    for video, truth in cameras.values():
        run, data = _run(video, list(range(3, 33)))
        found = list(FrameDecoder().decode(video.index, run, data))
        assert [ordinal for ordinal, _ in found] == list(range(3, 33))
        assert [fingerprint(picture) for _, picture in found] == truth[3:33]


def test_a_run_left_half_way(cameras: dict[str, tuple[CameraVideo, list[str]]]) -> None:
    decoder = FrameDecoder()
    for video, truth in cameras.values():
        run, data = _run(video, list(range(20)))
        frames = decoder.decode(video.index, run, data)
        next(frames)
        frames.close()  # type: ignore[attr-defined]  # a generator
        run, data = _run(video, [7])
        ((_, picture),) = decoder.decode(video.index, run, data)
        assert fingerprint(picture) == truth[7]


def test_two_runs_open_at_once(cameras: dict[str, tuple[CameraVideo, list[str]]]) -> None:
    decoder = FrameDecoder()
    video, truth = cameras["h264.mp4"]
    run, data = _run(video, list(range(12)))
    both = zip(
        decoder.decode(video.index, run, data), decoder.decode(video.index, run, data), strict=True
    )
    for (number, left), (_, right) in both:
        assert fingerprint(left) == fingerprint(right) == truth[number]


def test_kept_frames_stay_as_they_are(cameras: dict[str, tuple[CameraVideo, list[str]]]) -> None:
    decoder = FrameDecoder()
    video, truth = cameras["h264.mp4"]
    run, data = _run(video, [4])
    ((_, kept),) = decoder.decode(video.index, run, data)
    for frame in range(40):
        list(decoder.decode(video.index, *_run(video, [frame])))
    assert fingerprint(kept) == truth[4]


def test_damage_is_found_before_anything_is_decoded(
    cameras: dict[str, tuple[CameraVideo, list[str]]],
) -> None:
    decoder = FrameDecoder()
    for video, truth in cameras.values():
        run, data = _run(video, list(range(10)))
        broken = bytearray(data)
        broken[-1] ^= 1
        with pytest.raises(CorruptDataError, match=rf"video packet {run.stop_packet - 1} of 40"):
            decoder.decode(video.index, run, bytes(broken))
        with pytest.raises(CorruptDataError, match="bytes, got"):
            decoder.decode(video.index, run, data[:-1])
        ((_, picture),) = decoder.decode(video.index, *_run(video, [9]))
        assert fingerprint(picture) == truth[9]


def test_what_the_caller_has_verified_is_not_checked_again(
    cameras: dict[str, tuple[CameraVideo, list[str]]],
) -> None:
    video, truth = cameras["h264.mp4"]
    run, data = _run(video, [3, 4])
    unknown = dataclasses.replace(video.index, packet_checksum=np.zeros(40, np.uint64))
    found = FrameDecoder().decode(unknown, run, data, verified=True)
    assert [fingerprint(picture) for _, picture in found] == truth[3:5]
    with pytest.raises(CorruptDataError, match="bytes, got"):
        FrameDecoder().decode(unknown, run, data[:-1], verified=True)


def test_a_decoder_that_refuses_leaves_the_next_run_alone(
    cameras: dict[str, tuple[CameraVideo, list[str]]],
) -> None:
    decoder = FrameDecoder()
    video, truth = cameras["h264.mp4"]
    run, data = _run(video, [0])
    noise = np.random.default_rng(0).bytes(len(data))
    lying = dataclasses.replace(
        video.index, packet_checksum=np.full(40, xxhash.xxh3_64_intdigest(noise), np.uint64)
    )
    with pytest.raises(VideoError, match=r"packets 0\.\.0 \(h264\)"):
        list(decoder.decode(lying, run, noise))
    ((_, picture),) = decoder.decode(video.index, *_run(video, [0]))
    assert fingerprint(picture) == truth[0]


def test_a_frame_that_does_not_come_out(cameras: dict[str, tuple[CameraVideo, list[str]]]) -> None:
    video, _ = cameras["h264.mp4"]
    run, data = _run(video, [5])
    wanted = dataclasses.replace(run, frames=np.array([5, 39], np.int32))
    with pytest.raises(VideoError, match="left out frame 39"):
        list(FrameDecoder().decode(video.index, wanted, data))


def test_an_unknown_codec(cameras: dict[str, tuple[CameraVideo, list[str]]]) -> None:
    video, _ = cameras["mjpeg.mkv"]
    index = dataclasses.replace(video.index, codec="tomorrow")
    with pytest.raises(VideoError, match="no decoder for codec 'tomorrow'"):
        list(FrameDecoder().decode(index, *_run(video, [0])))


def test_more_kinds_of_stream_than_decoders_are_kept(tmp_path: Path) -> None:
    decoder = FrameDecoder()
    made = []
    for number in range(12):
        path = tmp_path / f"{number}.mp4"
        write_clip(path, "mpeg4", {"g": "4"}, count=3, size=(16, 16 + 2 * number))
        with VideoFile(path) as file:
            made.append((file.cut(0, 3, steps(3)), plain_decode(path)))
    for _ in range(2):
        for video, truth in made:
            ((_, picture),) = decoder.decode(video.index, *_run(video, [2]))
            assert fingerprint(picture) == truth[2]
