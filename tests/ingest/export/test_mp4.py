"""Packets of several episodes in one MP4: whoever decodes the file sees the right pictures."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.export.errors import ExportError, UnfitError
from ingest.export.lerobot import layout_v3
from ingest.export.lerobot.layout_v3 import _VideoFiles
from ingest.export.lerobot.mp4 import Clip, Mp4File
from ingest.export.lerobot.timeline import place
from lake import CameraVideo
from lake.errors import VideoError
from lake.video_encode import encode_frames
from lake.video_file import VideoFile
from tests.episodes import moving_pictures
from tests.lake.video_clips import fingerprint, plain_decode, shows, steps, write_clip

FPS = 30
CODECS = {
    "h264": ("libx264", {"preset": "ultrafast", "g": "7", "bf": "0"}),
    "h264-b": ("libx264", {"preset": "veryfast", "g": "12", "bf": "2"}),
    "h264-open": (
        "libx264",
        {"preset": "veryfast", "x264-params": "keyint=9:open-gop=1:bframes=3"},
    ),
    "hevc-open": (
        "libx265",
        {"preset": "ultrafast", "x265-params": "log-level=none:keyint=9:open-gop=1:bframes=3"},
    ),
    "hevc": (
        "libx265",
        {"preset": "ultrafast", "x265-params": "log-level=none:keyint=5:open-gop=0"},
    ),
    "hevc-radl": (
        "libx265",
        {"preset": "ultrafast", "x265-params": "log-level=none:keyint=9:open-gop=0:radl=2"},
    ),
    "h264-refresh": (
        "libx264",
        {"preset": "veryfast", "g": "9", "x264-params": "intra-refresh=1"},
    ),
    "av1": ("libsvtav1", {"preset": "12", "svtav1-params": "keyint=8:lp=1"}),
}


def clip(video: CameraVideo) -> Clip:
    return Clip.of(video, place("top", video.index))


def decoded_by_time(path: Path) -> dict[int, str]:
    """Fingerprint of every frame that a plain decode of a file shows, by time in frames."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.time_base is not None
        found = {}
        for frame in container.decode(stream):
            assert frame.pts is not None
            at = frame.pts * stream.time_base * FPS
            assert at.denominator == 1
            found[int(at)] = fingerprint(frame)
        return found


def check(folder: Path, source: Path, cuts: list[tuple[int, int]]) -> int:
    """Cut a file, copy the cuts one after the other, and look at all of it; number of files."""
    truth = plain_decode(source)
    with VideoFile(source) as file:
        videos = [file.cut(first, count, steps(count)) for first, count in cuts]
    files = _VideoFiles(folder, "top", FPS, 1 << 30)
    places = [files.write(clip(video)) for video in videos]
    files.close()
    paths = sorted(folder.rglob("*.mp4"))
    assert len(paths) == files.count == places[-1][0] + 1
    for (first, count), video, (number, start) in zip(cuts, videos, places, strict=True):
        shown = decoded_by_time(paths[number])
        assert [shown[start + step] for step in range(count)] == truth[first : first + count]
        with VideoFile(paths[number]) as again:
            cut = again.cut(start, count, steps(count))
            assert again.fps == FPS
        assert bytes(cut.payload) == bytes(video.payload)
        assert shows(cut, range(count)) == truth[first : first + count]
        kept = video.index.packet_frame >= 0
        assert cut.index.packet_frame[kept].tolist() == video.index.packet_frame[kept].tolist()
        assert cut.index.packet_key.tolist() == video.index.packet_key.tolist()
    return len(paths)


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_is_copied(tmp_path: Path, name: str) -> None:
    codec, options = CODECS[name]
    source = write_clip(tmp_path / "clip.mp4", codec, options)
    count = check(tmp_path / "out", source, [(0, 13), (13, 10), (23, 17), (5, 3)])
    if "open" not in name:
        assert count == 1


@settings(max_examples=12)
@given(
    gop=st.integers(1, 12),
    b_frames=st.integers(0, 3),
    open_gop=st.booleans(),
    references=st.integers(1, 4),
    codec=st.sampled_from(["libx264", "libx265"]),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=4),
)
def test_any_gop_structure(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    gop: int,
    b_frames: int,
    open_gop: bool,
    references: int,
    codec: str,
    cuts: list[tuple[int, int]],
) -> None:
    params = f"keyint={gop}:bframes={b_frames}:open-gop={int(open_gop)}:ref={references}"
    folder = tmp_path_factory.mktemp("gop")
    options = {"preset": "veryfast", "x264-params": params}
    if codec == "libx265":
        options = {"preset": "ultrafast", "x265-params": f"log-level=none:{params}"}
    source = write_clip(folder / "clip.mp4", codec, options)
    check(folder / "out", source, cuts)


def encoded(count: int = 6, *, height: int = 48, crf: int = 18) -> CameraVideo:
    return encode_frames(
        moving_pictures(count, height), fps=FPS, step_to_frame=steps(count), gop=3, crf=crf
    )


def test_streams_with_other_headers_go_into_other_files(tmp_path: Path) -> None:
    first = clip(encoded())
    file = Mp4File(tmp_path / "a.mp4", FPS, first)
    file.append(first)
    assert file.takes(clip(encoded()))
    assert not file.takes(clip(encoded(height=64)))
    # The initial quantiser stands in the picture parameter set.
    assert not file.takes(clip(encoded(crf=40)))
    file.close()


def test_times_stay_where_lerobot_can_compare_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_v3, "MAX_FILE_S", 15 / FPS)
    files = _VideoFiles(tmp_path, "top", FPS, 1 << 30)
    places = [files.write(clip(encoded())) for _ in range(5)]
    files.close()
    assert places == [(0, 0), (0, 6), (1, 0), (1, 6), (2, 0)]


def test_a_file_that_reads_otherwise_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = clip(encoded())
    file = Mp4File(tmp_path / "a.mp4", FPS, one)
    file.append(one)
    monkeypatch.setattr(file, "_period", Fraction(1, 29))
    with pytest.raises(ExportError, match=r"a\.mp4: frame 1 is shown at 0\.033333 s"):
        file.close()


def test_a_packet_without_a_header_is_refused() -> None:
    video = encoded()
    index = video.index
    broken = CameraVideo(index=index, payload=b"\0" * index.num_bytes)
    with pytest.raises(VideoError, match="NAL unit"):
        clip(broken)


def test_steps_must_show_frame_after_frame() -> None:
    index = encoded().index
    shown = np.array([0, 1, 2, 2, 3, 4], np.int32)
    with pytest.raises(UnfitError, match="step 3 shows frame 2, the step before 2"):
        place("top", replace(index, step_to_frame=shown))
