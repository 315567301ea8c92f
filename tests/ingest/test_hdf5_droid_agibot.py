"""DROID raw and AgiBot World: signals in HDF5, cameras in videos beside it."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ingest.errors import EpisodeError, SourceError
from ingest.formats import detect, discover
from ingest.hdf5.agibot import AgibotSource
from ingest.hdf5.droid import DroidSource
from ingest.pipeline import ingest_sources
from ingest.source import EpisodeReading, SourceOptions
from lake import Lake, read_frames, visible_episodes
from tests.ingest.test_dexdata import write_video

_UUID = "LAB+1234+2023-05-01-10h-00m-00s"


def write_droid(root: Path, *, steps: int = 8, frames: int | None = None) -> Path:
    """An episode's folder, below its lab's."""
    folder = root / "LAB" / "success" / "2023-05-01" / "Mon_May__1_10:00:00_2023"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with h5py.File(folder / "trajectory.h5", "w") as file:
        for name, size in (("cartesian_position", 6), ("joint_velocity", 7)):
            file[f"action/{name}"] = rng.normal(size=(steps, size))
        file["action/gripper_position"] = rng.normal(size=steps)
        file["observation/robot_state/joint_positions"] = rng.normal(size=(steps, 7))
        file["observation/timestamp/skip_action"] = np.zeros(steps, bool)
        stamps = 1_682_935_200_000 + 67 * np.arange(steps)
        file["observation/timestamp/control/step_start"] = stamps
    about = {"uuid": _UUID, "current_task": "Move object into or out of container"}
    (folder / f"metadata_{_UUID}.json").write_text(json.dumps(about))
    write_video(folder / "recordings" / "MP4" / "22008760.mp4", steps if frames is None else frames)
    return folder


def read_droid(folder: Path, **options: Any) -> EpisodeReading:
    source = DroidSource(folder, SourceOptions(**options))
    try:
        return source.read(source.entries()[0])
    finally:
        source.close()


def test_a_droid_folder_is_an_episode(tmp_path: Path, lake: Lake) -> None:
    folder = write_droid(tmp_path)
    annotations = {
        _UUID: {"language_instruction1": "put the cup away", "language_instruction2": ""}
    }
    (tmp_path / "aggregated-annotations-030724.json").write_text(json.dumps(annotations))
    known = detect(folder)
    assert known is not None
    assert known.name == "hdf5-droid"
    assert [source.path for source in discover(tmp_path).sources] == [folder]
    (report,) = ingest_sources([folder], lake).sources
    assert report.written == 1, report
    (row,) = visible_episodes(lake, ["episode_id", "dataset", "num_steps", "fps"]).to_pylist()
    assert row["episode_id"].startswith(f"LAB/{_UUID}-")
    assert (row["dataset"], row["num_steps"], row["fps"]) == ("LAB", 8, 15.0)
    (labels,) = lake.dataset("episodes").to_table().to_pylist()
    assert (labels["instruction"], labels["success"]) == ("put the cup away", True)


def test_droid_keeps_every_stream_and_its_own_clock(tmp_path: Path) -> None:
    reading = read_droid(write_droid(tmp_path))
    episode = reading.episode
    assert np.diff(episode.timestamps_ns).tolist() == [67_000_000] * 7
    assert episode.features["observation_timestamp_skip_action"].dtype == np.bool_
    assert {f.name for f in episode.spec.features if f.role == "action"} == {
        "action_cartesian_position",
        "action_gripper_position",
    }
    assert {f.name for f in episode.spec.features if f.role == "state"} == {"joint_positions"}
    assert episode.cameras["camera_22008760"].index.step_to_frame.tolist() == list(range(8))
    assert not [finding for finding in reading.findings if finding.severity == "error"]


@pytest.mark.parametrize(("frames", "missing"), [(7, 1), (8, 0), (11, 0)])
def test_a_droid_video_may_be_shorter_or_longer_than_the_trajectory(
    tmp_path: Path, frames: int, missing: int
) -> None:
    reading = read_droid(write_droid(tmp_path, frames=frames))
    index = reading.episode.cameras["camera_22008760"].index
    assert int((index.step_to_frame < 0).sum()) == missing
    assert index.num_frames == min(frames, 8)
    assert ("more-frames" in {found.reason for found in reading.findings}) == (frames > 8)


def test_droid_goes_in_without_what_is_broken(tmp_path: Path) -> None:
    folder = write_droid(tmp_path)
    next(folder.glob("metadata_*.json")).write_text("{")
    video = folder / "recordings" / "MP4" / "22008760.mp4"
    video.write_bytes(b"nothing")
    source = DroidSource(folder, SourceOptions())
    assert [finding.reason for finding in source.findings()] == ["bad-metadata"]
    reading = source.read(source.entries()[0])
    source.close()
    assert [f.reason for f in reading.findings if f.severity == "error"] == ["bad-video"]
    assert reading.episode.success is True
    assert reading.episode.provenance.locator == f"2023-05-01/{folder.name}"


def test_droid_without_actions_is_refused(tmp_path: Path) -> None:
    folder = write_droid(tmp_path)
    with h5py.File(folder / "trajectory.h5", "r+") as file:
        del file["action"]
    with pytest.raises(EpisodeError, match="no action with a row per step"):
        read_droid(folder)


def write_agibot(root: Path, *, steps: int = 10, index: Any = (2, 3, 4)) -> Path:
    """A dataset of one task and one episode."""
    (root / "task_info").mkdir(parents=True)
    listed = [{"episode_id": 648642, "task_name": "Pickup items in the supermarket"}]
    (root / "task_info" / "task_327.json").write_text(json.dumps(listed))
    folder = root / "proprio_stats" / "327" / "648642"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with h5py.File(folder / "proprio_stats.h5", "w") as file:
        file["state/joint/position"] = rng.normal(size=(steps, 14))
        file["state/end/orientation"] = rng.normal(size=(steps, 2, 4))
        file["state/robot/position"] = np.zeros((0, 3))
        file["action/joint/position"] = rng.normal(size=(len(index), 14))
        file["action/joint/index"] = np.array(index)
        file["action/effector/position"] = rng.normal(size=(steps, 2)).astype(np.float32)
        file["action/effector/index"] = np.zeros(0, np.int64)
        file["timestamp"] = 1_720_000_000_000_000_000 + 33_333_333 * np.arange(steps)
    write_video(root / "observations" / "327" / "648642" / "videos" / "head_color.mp4", steps)
    return root


def read_agibot(root: Path) -> EpisodeReading:
    source = AgibotSource(root, SourceOptions())
    return source.read(source.entries()[0])


def test_agibot_is_read_task_by_task(tmp_path: Path, lake: Lake) -> None:
    root = write_agibot(tmp_path / "agibot")
    known = detect(root)
    assert known is not None
    assert known.name == "hdf5-agibot"
    (report,) = ingest_sources([root], lake).sources
    assert report.written == 1, report
    (row,) = visible_episodes(lake, ["episode_id"]).to_pylist()
    (labels,) = lake.dataset("episodes").to_table().to_pylist()
    assert labels["task"] == "Pickup items in the supermarket"
    assert len(read_frames(lake, row["episode_id"], "head", range(10))) == 10


def test_agibot_actions_are_where_their_index_says(tmp_path: Path) -> None:
    root = write_agibot(tmp_path / "agibot")
    reading = read_agibot(root)
    episode = reading.episode
    with h5py.File(next(root.rglob("*.h5"))) as file:
        stored, orientation = file["action/joint/position"][:], file["state/end/orientation"][:]
    action, valid = (
        episode.features["action_joint_position"],
        episode.valid["action_joint_position"],
    )
    np.testing.assert_array_equal(action[[2, 3, 4]], stored)
    assert np.flatnonzero(valid).tolist() == [2, 3, 4]
    assert np.isnan(action[~valid]).all()
    np.testing.assert_array_equal(episode.features["state_end_orientation"], orientation)
    assert "action_effector_position" not in episode.valid
    assert np.diff(episode.timestamps_ns).tolist() == [33_333_333] * 9
    assert {f.reason for f in reading.findings} == {"empty-stream"}


@pytest.mark.parametrize("index", [(2, 2, 4), (4, 3, 2), (-1, 2, 3), (2, 3, 10)])
def test_an_agibot_index_that_leads_nowhere_loses_its_stream(tmp_path: Path, index: Any) -> None:
    reading = read_agibot(write_agibot(tmp_path / "agibot", index=index))
    (lost,) = (found for found in reading.findings if found.severity == "error")
    assert (lost.stream, lost.reason) == ("action_joint_position", "bad-index")
    assert "state_joint_position" in reading.episode.features


def test_an_agibot_action_longer_than_the_state_is_corrupt(tmp_path: Path) -> None:
    reading = read_agibot(write_agibot(tmp_path / "agibot", index=range(12)))
    (lost,) = (found for found in reading.findings if found.severity == "error")
    assert (lost.stream, lost.reason) == ("action_joint_position", "length-differs")


def test_agibot_tells_of_what_is_not_listed_and_of_bad_lists(tmp_path: Path) -> None:
    root = write_agibot(tmp_path / "agibot")
    (root / "task_info" / "task_328.json").write_text("{")
    other = root / "proprio_stats" / "327" / "1"
    other.mkdir()
    (other / "proprio_stats.h5").write_bytes(b"")
    found = AgibotSource(root, SourceOptions()).findings()
    assert [(each.severity, each.reason, each.where) for each in found] == [
        ("error", "bad-json", "task_info/task_328.json"),
        ("warning", "unlisted-episode", "proprio_stats/327/1"),
    ]
    (root / "task_info" / "task_327.json").write_text("[]")
    with pytest.raises(SourceError, match="lists an episode"):
        AgibotSource(root, SourceOptions())
