"""robomimic, robosuite and LIBERO files."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from ingest.errors import EpisodeError, SourceError
from ingest.hdf5.robomimic import RobomimicSource, recognises
from ingest.pipeline import ingest_sources
from ingest.source import SourceOptions
from lake import Lake
from tests.ingest.hdf5_files import write_robomimic

_ENVIRONMENT = {
    "env_args": json.dumps(
        {"env_name": "Lift", "env_kwargs": {"robots": ["Panda"], "control_freq": 20}}
    )
}


def test_values_equal_the_file_and_demo_10_comes_last(tmp_path: Path) -> None:
    written = write_robomimic(tmp_path / "lift.hdf5", attributes=_ENVIRONMENT)
    source = RobomimicSource(tmp_path / "lift.hdf5", SourceOptions())
    entries = source.entries()
    assert [entry.locator for entry in entries] == [f"demo_{n}" for n in range(11)]
    assert [entry.num_steps for entry in entries] == [4 + n for n in range(11)]
    for entry in entries:
        arrays = written[entry.locator]
        episode = source.read(entry).episode
        for path, name in (
            ("actions", "action"),
            ("states", "states"),
            ("rewards", "reward"),
            ("dones", "done"),
            ("obs/robot0_eef_pos", "robot0_eef_pos"),
            ("obs/robot0_gripper_qpos", "robot0_gripper_qpos"),
            ("next_obs/robot0_eef_pos", "next_obs_robot0_eef_pos"),
        ):
            assert episode.features[name].dtype == arrays[path].dtype
            np.testing.assert_array_equal(episode.features[name], arrays[path])
    source.close()


def test_roles_labels_and_rate_come_from_the_file(tmp_path: Path) -> None:
    write_robomimic(
        tmp_path / "lift.hdf5",
        demos=3,
        attributes=_ENVIRONMENT,
        masks={"train": ("demo_0", "demo_2"), "valid": ("demo_1",), "20_percent": ("demo_0",)},
    )
    source = RobomimicSource(tmp_path / "lift.hdf5", SourceOptions())
    assert source.format == "hdf5-robomimic"
    first, second, _ = (source.read(entry).episode for entry in source.entries())
    roles = {feature.name: feature.role for feature in first.spec.features}
    assert [name for name, role in roles.items() if role == "state"] == [
        "robot0_eef_pos",
        "robot0_gripper_qpos",
    ]
    assert roles["states"] == "other"
    assert (first.task, first.embodiment, first.fps) == ("Lift", "Panda", 20.0)
    assert (first.split, second.split) == ("train", "valid")
    assert set(first.tags) == {"mask:train", "mask:20_percent"}
    assert [camera.name for camera in first.spec.cameras] == ["agentview_image"]


def test_wrong_counts_and_masks_are_reported_and_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "lift.hdf5"
    write_robomimic(path, demos=2, masks={"train": ("demo_0", "demo_7")})
    with h5py.File(path, "r+") as file:
        file["data"].attrs["total"] = 1000
        file["data/demo_1"].attrs["num_samples"] = 3
    source = RobomimicSource(path, SourceOptions())
    assert {f.reason for f in source.findings()} == {"wrong-count", "mask-without-episode"}
    reading = source.read(source.entries()[1])
    assert reading.episode.num_steps == 5
    assert "wrong-count" in {f.reason for f in reading.findings}


def test_a_file_without_a_clock_numbers_its_steps(tmp_path: Path) -> None:
    write_robomimic(tmp_path / "lift.hdf5", demos=1)
    source = RobomimicSource(tmp_path / "lift.hdf5", SourceOptions())
    reading = source.read(source.entries()[0])
    assert reading.episode.fps is None
    assert reading.episode.timestamps_ns.tolist() == [0, 1, 2, 3]
    assert "no-clock" in {f.reason for f in reading.findings}


def test_libero_states_its_conventions(tmp_path: Path) -> None:
    write_robomimic(
        tmp_path / "task_demo.hdf5",
        demos=1,
        attributes={
            "problem_info": json.dumps({"language_instruction": ["open the drawer"]}),
            "bddl_file_name": "open.bddl",
            "macros_image_convention": "opengl",
        },
    )
    source = RobomimicSource(tmp_path / "task_demo.hdf5", SourceOptions())
    episode = source.read(source.entries()[0]).episode
    assert source.format == "hdf5-libero"
    assert episode.instruction == "open the drawer"
    assert episode.spec.conventions["action_timing"] == "obs[t] is the result of action[t]"
    assert episode.spec.conventions["image_origin"] == "opengl"


def test_an_episode_without_actions_is_refused_alone(tmp_path: Path, lake: Lake) -> None:
    path = tmp_path / "lift.hdf5"
    write_robomimic(path, demos=3)
    with h5py.File(path, "r+") as file:
        del file["data/demo_1/actions"]
    report = ingest_sources([path], lake)
    assert (report.sources[0].written, report.sources[0].quarantined) == (2, 1)
    [row] = lake.dataset("quarantine").to_table().to_pylist()
    assert (row["episode"], row["reason"]) == ("demo_1", "no-action")
    with pytest.raises(EpisodeError, match="demo_1: no dataset `actions`"):
        ingest_sources([path], lake, on_error="fail")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:0], "empty-file"),
        (lambda data: data[: len(data) // 3], "damaged-file"),
        (lambda data: b"junk" + data, "not-hdf5"),
    ],
)
def test_damaged_files_have_a_named_reason(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    path = tmp_path / "lift.hdf5"
    write_robomimic(path, demos=1)
    path.write_bytes(damage(path.read_bytes()))
    assert not recognises(path)
    with pytest.raises(SourceError) as error:
        RobomimicSource(path, SourceOptions())
    assert error.value.reason == reason
    assert str(path) in str(error.value)


def test_bland_file_names_take_their_folders_name(tmp_path: Path) -> None:
    (tmp_path / "PandaLift").mkdir()
    write_robomimic(tmp_path / "PandaLift" / "demo.hdf5", demos=1)
    source = RobomimicSource(tmp_path / "PandaLift" / "demo.hdf5", SourceOptions())
    assert source.dataset == "PandaLift_demo"


def test_real_robosuite_demonstrations(recordings: Path) -> None:
    files = sorted((recordings / "robosuite_hdf5_demos").glob("*.hdf5"))
    assert files
    for path in files:
        source = RobomimicSource(path, SourceOptions(fps=20.0))
        assert source.format == "hdf5-robosuite"
        with h5py.File(path, "r") as file:
            for entry in source.entries():
                demo = file["data"][entry.locator]
                reading = source.read(entry)
                episode = reading.episode
                assert episode.embodiment == "Panda"
                names = {"actions": "action", "states": "states", "joint_torques": "joint_torques"}
                assert set(episode.features) == {names[name] for name in demo}
                for stored, name in names.items():
                    np.testing.assert_array_equal(episode.features[name], demo[stored][()])
                assert episode.spec.feature("states").role == "state"
        source.close()
