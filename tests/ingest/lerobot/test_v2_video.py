"""Times and videos of v2 datasets: which frame a step shows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.ingest.lerobot_data import (
    FPS,
    decoded,
    edit_info,
    edit_rows,
    open_source,
    plain_decode,
    read_all,
    reasons,
    replace_column,
    same_frames,
    v2_data,
    v2_video,
    write_v2,
    write_video,
)

TOP = "observation.images.top"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v2(tmp_path / "toy")


def test_times_are_rounded_from_the_stored_float_which_is_kept(root: Path) -> None:
    episode = read_all(root)[1].episode
    stored = (np.arange(7) / FPS).astype(np.float32)
    assert episode.features["timestamp"].tobytes() == stored.tobytes()
    assert episode.timestamps_ns.tolist() == [round(float(t) * 1e9) for t in stored]


def test_times_that_start_late_do_not_shift_the_frames(root: Path) -> None:
    late = (np.arange(5) / FPS + 0.05).astype(np.float64)
    edit_rows(root / v2_data(0), lambda t: replace_column(t, "timestamp", late))
    episode = read_all(root)[0].episode
    assert episode.timestamps_ns[0] == 50_000_000
    assert episode.features["timestamp"].dtype == np.float64
    same_frames(root, episode, v2_video(TOP, 0), range(5))


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("start_pts", [0, 7])
def test_frames_count_from_the_first_wherever_the_file_starts(
    root: Path, b_frames: int, start_pts: int
) -> None:
    write_video(root / v2_video(TOP, 0), 5, b_frames=b_frames, start_pts=start_pts)
    same_frames(root, read_all(root)[0].episode, v2_video(TOP, 0), range(5))


def test_fewer_frames_than_rows_are_marked_and_told(root: Path) -> None:
    write_video(root / v2_video(TOP, 0), 3)
    reading = read_all(root)[0]
    assert reading.episode.cameras["top"].index.step_to_frame.tolist() == [0, 1, 2, -1, -1]
    assert reading.episode.num_steps == 5
    assert reasons(reading.findings) == {"steps-without-frame"}
    assert "2 of 5 steps" in reading.episode.provenance.findings[0]
    same_frames(root, reading.episode, v2_video(TOP, 0), range(3))


def test_more_frames_than_rows_are_told(root: Path) -> None:
    write_video(root / v2_video(TOP, 0), 9)
    reading = read_all(root)[0]
    assert reading.episode.cameras["top"].index.step_to_frame.tolist() == [0, 1, 2, 3, 4]
    assert reasons(reading.findings) == {"more-frames"}
    same_frames(root, reading.episode, v2_video(TOP, 0), range(5))


def test_a_video_of_another_rate_is_not_matched_by_number(root: Path) -> None:
    write_video(root / v2_video(TOP, 0), 3, fps=FPS // 2)
    reading = read_all(root)[0]
    assert reading.episode.cameras == {}
    (finding,) = reading.findings
    assert (finding.severity, finding.reason, finding.stream) == ("error", "video-rate", TOP)


def test_one_frame_per_step_at_another_rate_is_used_and_told(root: Path) -> None:
    write_video(root / v2_video(TOP, 0), 5, fps=FPS * 2)
    reading = read_all(root)[0]
    assert reasons(reading.findings) == {"video-rate"}
    same_frames(root, reading.episode, v2_video(TOP, 0), range(5))


def test_one_step_one_frame(tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy", lengths=(1,))
    (reading,) = read_all(root)
    assert reading.findings == ()
    assert reading.episode.num_steps == 1
    same_frames(root, reading.episode, v2_video(TOP, 0), range(1))


def test_a_video_missing_for_one_episode(root: Path) -> None:
    (root / v2_video(TOP, 1)).unlink()
    first, second = read_all(root)
    assert set(first.episode.cameras) == {"top"}
    assert second.episode.cameras == {}
    (finding,) = second.findings
    assert (finding.severity, finding.reason) == ("error", "missing-video")


def test_a_camera_without_any_file(root: Path) -> None:
    ghost = {"dtype": "video", "shape": [8, 8, 3]}
    edit_info(root, lambda info: info["features"].update({"observation.images.ghost": ghost}))
    source = open_source(root)
    (found,) = source.findings()
    assert (found.severity, found.reason) == ("warning", "camera-without-files")
    assert [camera.name for camera in source.spec.cameras] == ["top", "ghost"]
    for reading in read_all(root):
        assert set(reading.episode.cameras) == {"top"}
        assert [f.severity for f in reading.findings] == ["info"]


@pytest.mark.parametrize("content", [b"", b"not a video at all" * 9])
def test_an_unreadable_video_costs_the_camera_not_the_episode(root: Path, content: bytes) -> None:
    (root / v2_video(TOP, 0)).write_bytes(content)
    first, second = read_all(root)
    assert first.episode.cameras == {}
    assert [(f.severity, f.reason) for f in first.findings] == [("error", "bad-video")]
    assert v2_video(TOP, 0).rsplit("/", 1)[1] in first.findings[0].detail
    assert set(second.episode.cameras) == {"top"}


def test_a_container_title_that_is_not_utf8_does_no_harm(root: Path) -> None:
    path = root / v2_video(TOP, 0)
    data = path.read_bytes()
    assert b"Lavf" in data
    path.write_bytes(data.replace(b"Lavf", b"L\xe9vf"))
    reading = read_all(root)[0]
    assert reading.findings == ()
    assert set(reading.episode.cameras) == {"top"}


@pytest.mark.parametrize(
    "folder", ["video/chunk-000/{key}", "videos/{key}/chunk-000", "clips/{key}"]
)
def test_videos_elsewhere_than_the_template_says(root: Path, folder: str) -> None:
    for index in (0, 1):
        old = root / v2_video(TOP, index)
        new = root / folder.format(key=TOP) / old.name
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
    reading = read_all(root)[1]
    assert reasons(reading.findings) == {"video-path-differs"}
    moved = f"{folder.format(key=TOP)}/episode_000001.mp4"
    assert reading.episode.provenance.files[1] == moved
    same_frames(root, reading.episode, moved, range(7))


def test_rows_removed_from_the_parquet_keep_their_own_frames(root: Path) -> None:
    edit_rows(root / v2_data(1), lambda t: t.take(pa.array([0, 1, 4, 6])))
    reading = read_all(root)[1]
    shown = reading.episode.cameras["top"].index.step_to_frame
    assert shown.tolist() == [0, 1, 4, 6]
    assert {"frame-index-gap", "wrong-count"} <= reasons(reading.findings)
    frames, truth = decoded(reading.episode.cameras["top"]), plain_decode(root / v2_video(TOP, 1))
    assert all((frames[number] == truth[number]).all() for number in (0, 1, 4, 6))


def test_rows_in_another_order_keep_their_own_frames(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: t.take(pa.array([0, 2, 1, 3, 4])))
    reading = read_all(root)[0]
    video = reading.episode.cameras["top"]
    assert video.index.step_to_frame.tolist() == [0, 2, 1, 3, 4]
    assert {"frame-index-gap", "backward-timestamps"} <= reasons(reading.findings)
    frames, truth = decoded(video), plain_decode(root / v2_video(TOP, 0))
    assert all((frames[number] == truth[number]).all() for number in range(5))
