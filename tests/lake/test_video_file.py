"""Cuts of files show exactly what a plain decode of the whole file shows."""

import os
import re
import shutil
from functools import cache
from pathlib import Path

import av
import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lake.errors import VideoError
from lake.video_file import VideoFile
from lake.video_index import VideoIndex
from tests.lake.video_clips import fingerprint, plain_decode, shows, steps, write_clip

_LONG = 130  # frames; of longer files the beginning is decoded

_OPEN = "open-gop=1"

# name -> codec, options, file name extension, pixel format
_CLIPS: dict[str, tuple[str, dict[str, str], str, str]] = {
    "closed": ("libx264", {"g": "7", "bf": "2"}, "mp4", "yuv420p"),
    "open": ("libx264", {"g": "12", "bf": "3", "x264-params": _OPEN}, "mp4", "yuv420p"),
    "open-mkv": ("libx264", {"g": "9", "bf": "3", "x264-params": _OPEN}, "mkv", "yuv420p"),
    "gop-2": ("libx264", {"g": "2"}, "mp4", "yuv420p"),
    "intra": ("libx264", {"g": "1"}, "mp4", "yuv420p"),
    "refresh": ("libx264", {"g": "9", "x264-params": "intra-refresh=1"}, "mp4", "yuv420p"),
    "444": ("libx264", {"g": "10", "bf": "3", "x264-params": _OPEN}, "mp4", "yuv444p"),
    "fragments": ("libx264", {"g": "8", "bf": "2", "x264-params": _OPEN}, "frag.mp4", "yuv420p"),
    "front": ("libx264", {"g": "8", "bf": "2", "x264-params": _OPEN}, "front.mp4", "yuv420p"),
    "stream": ("libx264", {"g": "8", "bf": "2"}, "ts", "yuv420p"),
    "h265-open": ("libx265", {"x265-params": f"keyint=9:bframes=3:{_OPEN}"}, "mp4", "yuv420p"),
    "h265-closed": ("libx265", {"x265-params": "keyint=8:open-gop=0:bframes=4"}, "mkv", "yuv420p"),
    "h265-radl": ("libx265", {"x265-params": "keyint=9:open-gop=0:radl=2"}, "mp4", "yuv420p"),
    "av1": ("libsvtav1", {"g": "10"}, "front.mp4", "yuv420p"),
    "av1-gop-2": ("libsvtav1", {"g": "2"}, "mkv", "yuv420p"),
    "mpeg4": ("mpeg4", {"g": "12", "bf": "2"}, "mp4", "yuv420p"),
    "mpeg4-avi": ("mpeg4", {"g": "12", "bf": "2"}, "avi", "yuv420p"),
    "mpeg2": ("mpeg2video", {"g": "12", "bf": "2"}, "mkv", "yuv420p"),
    "vp9": ("libvpx-vp9", {"g": "12", "lag-in-frames": "16", "cpu-used": "8"}, "mkv", "yuv420p"),
    "vp8-hidden": ("libvpx", {"auto-alt-ref": "1", "lag-in-frames": "16"}, "mkv", "yuv420p"),
    "mjpeg": ("mjpeg", {}, "mp4", "yuvj420p"),
    "ffv1": ("ffv1", {"g": "5"}, "mkv", "yuv420p"),
    "png": ("png", {}, "mov", "rgb24"),
}  # fmt: skip
_FASTEST = {
    "libx264": {"preset": "veryfast"},
    "libsvtav1": {"preset": "12", "svtav1-params": "lp=1"},
}


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@cache
def _clip(folder: Path, name: str) -> tuple[Path, list[str]]:
    codec, options, extension, pix_fmt = _CLIPS[name]
    flags = {"frag.mp4": "frag_keyframe+empty_moov", "front.mp4": "faststart"}.get(extension)
    path = write_clip(
        folder / f"{name}.{extension}",
        codec,
        _FASTEST.get(codec, {}) | options,
        pix_fmt=pix_fmt,
        container_options={"movflags": flags} if flags else {},
    )
    return path, plain_decode(path)


def _check_cut(file: VideoFile, truth: list[str], first: int, count: int) -> None:
    cut = file.cut(first, count, steps(count))
    index = cut.index
    assert index.num_frames == count
    assert np.array_equal(
        np.sort(index.packet_frame[index.packet_frame >= 0]), np.arange(count, dtype=np.int32)
    )
    assert len(np.unique(index.packet_frame)) == len(index.packet_frame)
    assert index.packet_frame[-1] >= 0, "nothing is kept after the last wanted frame"
    assert VideoIndex.from_bytes(index.to_bytes()).packet_pts.tolist() == index.packet_pts.tolist()
    assert shows(cut, range(count)) == truth[first : first + count]


@pytest.mark.parametrize("name", _CLIPS)
def test_whole_file(clips: Path, name: str) -> None:
    path, truth = _clip(clips, name)
    with VideoFile(path) as file:
        assert file.num_frames == len(truth) == 40
        assert (file.height, file.width, file.damage) == (48, 64, "")
        assert np.all(np.diff(file.frame_pts) > 0)
        _check_cut(file, truth, 0, len(truth))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_cut_and_any_frame(clips: Path, data: st.DataObject) -> None:
    path, truth = _clip(clips, data.draw(st.sampled_from(sorted(_CLIPS))))
    with VideoFile(path) as file:
        for _ in range(3):
            first = data.draw(st.integers(0, len(truth) - 1))
            count = data.draw(st.integers(1, len(truth) - first))
            _check_cut(file, truth, first, count)
            cut = file.cut(first, count, steps(count))
            wanted = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4))
            assert shows(cut, wanted) == [truth[first + frame] for frame in wanted]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    gop=st.integers(2, 30),
    bframes=st.integers(0, 4),
    open_gop=st.booleans(),
    references=st.integers(1, 5),
    codec=st.sampled_from(["libx264", "libx265"]),
    first=st.integers(0, 39),
    count=st.integers(1, 20),
)
def test_any_gop_structure(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    gop: int,
    bframes: int,
    open_gop: bool,
    references: int,
    codec: str,
    first: int,
    count: int,
) -> None:
    params = f"keyint={gop}:bframes={bframes}:open-gop={int(open_gop)}:ref={references}"
    name = codec.replace("lib", "") + "-params"
    path = tmp_path_factory.mktemp("gop") / "clip.mp4"
    write_clip(path, codec, {"preset": "veryfast", name: params})
    truth = plain_decode(path)
    with VideoFile(path) as file:
        _check_cut(file, truth, first, min(count, len(truth) - first))


def test_every_recording(recordings: Path) -> None:
    paths = sorted(
        path for path in recordings.rglob("*") if path.suffix in {".mp4", ".mkv", ".mov", ".webm"}
    )
    assert paths, f"no videos under {recordings}"
    random = np.random.default_rng(0)
    for path in paths:
        with VideoFile(path) as file:
            truth = plain_decode(path, None if file.num_frames < _LONG else 60)
            if file.num_frames < _LONG:
                assert file.num_frames == len(truth), path
            for _ in range(4):
                first = int(random.integers(0, len(truth)))
                _check_cut(
                    file, truth, first, int(random.integers(1, min(30, len(truth) - first) + 1))
                )


def test_deep_frames_of_long_recordings(recordings: Path) -> None:
    path = recordings / "lerobot_v3_by_lerobot_h264/videos/observation.images.top/chunk-000"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    with VideoFile(path / "file-000.mp4") as file, av.open(str(file.path)) as plain:
        assert file.num_frames == plain.streams.video[0].frames == 11_270
        for first in (11_269, 4_000, 7_777):
            cut = file.cut(first, 1, steps(1))
            pts = int(file.frame_pts[first])
            plain.seek(pts, stream=plain.streams.video[0])
            frame = next(frame for frame in plain.decode(video=0) if frame.pts == pts)
            assert shows(cut, [0]) == [fingerprint(frame)]


def test_edit_list_hides_its_discarded_frames(recordings: Path) -> None:
    path = recordings / "video_edge_torchcodec/discard_first_keyframe.mp4"
    with VideoFile(path) as file:
        assert (file.num_frames, file.frame_pts[0]) == (25, 0)
        cut = file.cut(0, 1, steps(1))
        assert (cut.index.packet_frame < 0).sum() == len(cut.index.packet_frame) - 1


def test_start_time_rotation_and_colour_are_kept(recordings: Path) -> None:
    folder = recordings / "video_edge_torchcodec"
    with VideoFile(folder / "test_non_zero_start.mp4") as file:
        assert file.frame_pts[0] == 127_995
        assert file.cut(0, 1, steps(1)).index.packet_pts[0] == 127_995
    with VideoFile(folder / "nasa_13013_rotated.mp4") as file:
        index = file.cut(3, 2, steps(2)).index
        assert (index.rotation_deg, index.width, index.height) == (90, 480, 270)
        assert (index.color_range, index.color_space) == (1, 1)
        assert (index.color_primaries, index.color_transfer) == (1, 1)


def test_variable_frame_rate_keeps_every_pts(tmp_path: Path) -> None:
    gaps = np.random.default_rng(1).integers(5, 400, 40)
    stamps = (1234 + np.cumsum(gaps)).tolist()
    path = write_clip(tmp_path / "vfr.mkv", "libx264", {"bf": "2", "g": "8"}, pts=stamps)
    with VideoFile(path) as file:
        milliseconds = file.frame_pts * float(file.time_base) * 1000
        assert np.allclose(milliseconds, stamps, atol=0.5)
        _check_cut(file, plain_decode(path), 11, 9)


def test_one_frame(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "one.mp4", "libx264", count=1, size=(2, 2))
    with VideoFile(path) as file:
        _check_cut(file, plain_decode(path), 0, 1)


def test_a_cut_starts_at_a_key_and_ends_with_its_last_frame(clips: Path) -> None:
    path, _ = _clip(clips, "gop-2")
    with VideoFile(path) as file:
        assert file.cut(10, 4, steps(4)).index.packet_frame.tolist() == [0, 1, 2, 3]
        assert file.cut(11, 2, steps(2)).index.packet_frame.tolist() == [-1, 0, 1]
        assert file.cut(11, 2, steps(2)).index.packet_key.tolist() == [True, False, True]


def test_intra_refresh_is_no_place_to_start(clips: Path) -> None:
    path, _ = _clip(clips, "refresh")
    with av.open(str(path)) as container:
        flagged = sum(packet.is_keyframe for packet in container.demux(video=0))
    with VideoFile(path) as file:
        index = file.cut(30, 5, steps(5)).index
    assert flagged > 1, "the clip must lie about its key frames"
    assert index.packet_key.sum() == 1
    assert index.packet_frame[0] == -30


def test_a_key_frame_without_sequence_header_is_no_place_to_start(tmp_path: Path) -> None:
    options = _FASTEST["libsvtav1"] | {"g": "10"}
    path = write_clip(
        tmp_path / "once.mkv", "libsvtav1", options, later_packets="filter_units=remove_types=1"
    )
    with VideoFile(path) as file:
        assert file.cut(25, 3, steps(3)).index.packet_key.sum() == 1
        _check_cut(file, plain_decode(path), 25, 10)


def test_checksums_are_of_the_stored_packets(clips: Path) -> None:
    path, _ = _clip(clips, "h265-open")
    with VideoFile(path) as file:
        cut = file.cut(3, 20, steps(20))
    offsets = cut.index.packet_offsets()
    for number, checksum in enumerate(cut.index.packet_checksum):
        data = memoryview(cut.payload)[offsets[number] : offsets[number + 1]]
        assert xxhash.xxh3_64_intdigest(data) == checksum
        assert bytes(data[:4]) == b"\0\0\0\1"  # Annex-B


def test_ascending_cuts_read_the_file_once(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, truth = _clip(clips, "av1-gop-2")
    with VideoFile(path) as file:
        seeks: list[int] = []
        seek = file._reader._seek

        def counted(row: int) -> None:
            seeks.append(row)
            seek(row)

        monkeypatch.setattr(file._reader, "_seek", counted)
        for first in range(0, 40, 8):
            _check_cut(file, truth, first, 8)
        assert seeks == [0]
        _check_cut(file, truth, 4, 8)
        assert seeks == [0, 4]


@pytest.mark.parametrize(("first", "count"), [(-1, 2), (0, 0), (0, 41), (40, 1), (39, 2)])
def test_frames_outside_the_file(clips: Path, first: int, count: int) -> None:
    path, _ = _clip(clips, "closed")
    with VideoFile(path) as file, pytest.raises(VideoError, match=r"closed\.mp4.* 40 readable"):
        file.cut(first, count, steps(max(count, 1)))


def test_a_file_changed_while_open(clips: Path, tmp_path: Path) -> None:
    path, _ = _clip(clips, "closed")
    victim = tmp_path / "victim.mp4"
    shutil.copy(path, victim)
    with VideoFile(victim) as file:
        victim.write_bytes(b"\0" * victim.stat().st_size)
        os.utime(victim, (1, 1))
        with pytest.raises(VideoError, match=r"victim\.mp4: .* is not what it was"):
            file.cut(20, 4, steps(4))


def test_equal_pts(tmp_path: Path) -> None:
    path = tmp_path / "twins.mkv"
    with (
        av.open(str(write_clip(tmp_path / "a.mkv", "mjpeg", pix_fmt="yuvj420p"))) as source,
        av.open(str(path), "w") as target,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(list(source.demux(video=0))[:4]):
            packet.stream = stream
            packet.pts = packet.dts = (0, 33, 33, 67)[number]
            target.mux(packet)
    with pytest.raises(VideoError, match=r"twins\.mkv: packets 1 and 2 share pts 33"):
        VideoFile(path)


def test_no_pts(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "raw.h264", "libx264", format="h264")
    with pytest.raises(VideoError, match=r"raw\.h264: packet 0 has no pts"):
        VideoFile(path)


def test_avi_has_no_display_order(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "b.avi", "libx264", {"bf": "2"})
    with pytest.raises(VideoError, match=r"b\.avi: AVI does not store the display order"):
        VideoFile(path)


def test_what_is_no_video(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("frames 3 and 4 are missing\n" * 100)
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        sound = container.add_stream("aac", rate=16000)
        assert isinstance(sound, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 16000
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    for name, reason in [
        ("absent.mp4", "no such video file"),
        ("empty.mp4", "empty"),
        ("text.mp4", "not a readable video"),
        ("sound.mp4", "no video stream"),
    ]:
        with pytest.raises(VideoError, match=reason) as caught:
            VideoFile(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(["closed", "front", "open-mkv", "fragments", "mpeg4-avi", "av1"]),
    share=st.floats(0.001, 0.999),
)
def test_cut_short_anywhere(clips: Path, name: str, share: float) -> None:
    whole, truth = _clip(clips, name)
    data = whole.read_bytes()
    path = clips / f"short{whole.suffix}"
    kept = max(1, int(len(data) * share))
    # Right behind a fragment, what is left is a whole recording that was stopped there.
    assume(name != "fragments" or data[kept + 4 : kept + 8] not in {b"moof", b"mfra"})
    path.write_bytes(data[:kept])
    with pytest.raises(VideoError) as caught:
        VideoFile(path)
    assert str(path) in str(caught.value)
    message = str(caught.value)
    if not any(
        reason in message for reason in ("no readable frame", "no frame can be read", "not a")
    ):
        with VideoFile(path, salvage=True) as file:
            assert re.search(rf"\b{file.num_frames}( of \d+)? frames are readable", message)
            assert file.damage.startswith("cut short")
            _check_cut(file, truth, 0, file.num_frames)
            with pytest.raises(VideoError, match="cut short"):
                file.cut(file.num_frames, 1, steps(1))
