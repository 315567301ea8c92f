"""Packets of parts of a camera, of every kind of stream: they decode to the frames they are of."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake import CameraVideo, VideoIndex
from lake.edit.cut_video import Cut, join_cuts
from lake.edit.make_view import _require_same_pictures
from lake.errors import EditError
from lake.video_file import VideoFile
from tests.lake.video_clips import plain_decode, shows, steps, write_clip

_OPEN = "open-gop=1"

# name -> codec, options, extension, whether any parts can be joined for sure
_CLIPS: dict[str, tuple[str, dict[str, str], str, bool]] = {
    "closed": ("libx264", {"g": "7", "bf": "2"}, "mp4", True),
    "gop-2": ("libx264", {"g": "2"}, "mp4", True),
    "open": ("libx264", {"g": "12", "bf": "3", "x264-params": _OPEN}, "mp4", False),
    "h265-open": ("libx265", {"x265-params": f"keyint=9:bframes=3:{_OPEN}"}, "mp4", False),
    "h265-radl": ("libx265", {"x265-params": "keyint=9:open-gop=0:radl=2"}, "mp4", False),
    "av1": ("libsvtav1", {"g": "10", "preset": "12", "svtav1-params": "lp=1"}, "mkv", False),
    "vp9": ("libvpx-vp9", {"g": "12", "lag-in-frames": "16", "cpu-used": "8"}, "mkv", False),
    "png": ("png", {}, "mov", True),
}
_FRAMES = 40


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@cache
def _clip(folder: Path, name: str) -> tuple[CameraVideo, list[str]]:
    codec, options, extension, _ = _CLIPS[name]
    pix_fmt = "rgb24" if codec == "png" else "yuv420p"
    path = write_clip(folder / f"{name}.{extension}", codec, options, pix_fmt=pix_fmt)
    with VideoFile(path) as file:
        return file.cut(0, _FRAMES, steps(_FRAMES)), plain_decode(path)


def _joined(video: CameraVideo, cuts: list[Cut]) -> CameraVideo:
    joined = join_cuts(cuts)
    assert joined is not None
    index, pieces = joined
    data = b"".join(video.payload[p.offset : p.offset + p.length] for p in pieces)
    assert VideoIndex.from_bytes(index.to_bytes()).packet_pts.tolist() == index.packet_pts.tolist()
    return CameraVideo(index=index, payload=data)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_part_shows_its_frames(clips: Path, data: st.DataObject) -> None:
    video, truth = _clip(clips, data.draw(st.sampled_from(sorted(_CLIPS))))
    start = data.draw(st.integers(0, _FRAMES - 1))
    stop = data.draw(st.integers(start + 1, _FRAMES))
    part = _joined(video, [Cut(video.index, start, stop)])
    frames = part.index.step_to_frame
    np.testing.assert_array_equal(frames, np.arange(stop - start))
    assert part.index.num_frames == stop - start
    assert len(np.unique(part.index.packet_frame)) == len(part.index.packet_frame)
    assert shows(part, frames.tolist()) == truth[start:stop]
    wanted = data.draw(st.lists(st.integers(0, stop - start - 1), min_size=1, max_size=4))
    assert shows(part, wanted) == [truth[start + frame] for frame in wanted]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_joined_parts_show_theirs_or_are_refused(clips: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(_CLIPS)))
    video, truth = _clip(clips, name)
    bounds = sorted(data.draw(st.sets(st.integers(0, _FRAMES), min_size=3, max_size=5)))
    ranges = data.draw(st.permutations(list(pairwise(bounds))))
    cuts = [Cut(video.index, start, stop) for start, stop in ranges]
    whole = _joined(video, cuts)
    try:
        _require_same_pictures(whole, cuts, [video] * len(cuts))
    except EditError:
        assert not _CLIPS[name][3]
        return
    expected = [frame for start, stop in ranges for frame in truth[start:stop]]
    assert shows(whole, whole.index.step_to_frame.tolist()) == expected
    some = data.draw(st.lists(st.integers(0, len(expected) - 1), min_size=1, max_size=4))
    assert shows(whole, whole.index.step_to_frame[some].tolist()) == [expected[n] for n in some]


def test_steps_that_share_a_frame_or_show_none(clips: Path) -> None:
    video, truth = _clip(clips, "closed")
    shown = np.array([-1, 3, 3, -1, 5, 9, 9, -1], np.int32)
    fields = {name: getattr(video.index, name) for name in vars(video.index)}
    index = VideoIndex(**{**fields, "step_to_frame": shown})
    part = _joined(video, [Cut(index, 2, 8)])
    np.testing.assert_array_equal(part.index.step_to_frame, [0, -1, 2, 6, 6, -1])
    assert shows(part, [0, 2, 6]) == [truth[3], truth[5], truth[9]]
    assert join_cuts([Cut(index, 0, 1)]) is None
    assert join_cuts([Cut(None, 0, 4)]) is None
    gap = _joined(video, [Cut(index, 0, 1), Cut(None, 0, 2), Cut(index, 5, 7)])
    np.testing.assert_array_equal(gap.index.step_to_frame, [-1, -1, -1, 0, 0])
