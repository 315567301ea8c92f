import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from training.simulation.errors import SimulationError
from training.simulation.policies import RandomPolicy, expert_actor
from training.simulation.recorder import record, write_episode
from training.simulation.rollout import play, rollout
from training.simulation.scene import Scene
from training.simulation.task import Purpose, sample_start


def test_files_hold_what_was_played(tmp_path: Path, seeing_scene: Scene) -> None:
    report = record(tmp_path, 2, 9)
    assert report.files == tuple(tmp_path / f"episode_{n}.hdf5" for n in range(2))
    assert report.cameras == ("top", "wrist")
    assert report.successes == 2
    for episode, (path, length) in enumerate(zip(report.files, report.lengths, strict=True)):
        start = sample_start(seeing_scene.config, Purpose.RECORD, 9, episode)
        played = play(seeing_scene, start, expert_actor(seeing_scene))
        assert played.steps == length
        with h5py.File(path) as file:
            assert sorted(file) == ["action", "observations"]
            assert sorted(file["observations"]) == ["env_state", "images", "qpos", "qvel"]
            assert sorted(file["observations/images"]) == ["top", "wrist"]
            for name, wanted in (
                ("action", played.actions),
                ("observations/qpos", played.states),
                ("observations/qvel", played.velocities),
                ("observations/env_state", played.env_states),
                ("observations/images/top", played.images["top"]),
                ("observations/images/wrist", played.images["wrist"]),
            ):
                assert file[name].dtype == wanted.dtype
                np.testing.assert_array_equal(file[name][...], wanted)
            assert file["observations/images/top"].chunks == (1, 64, 64, 3)
            assert dict(file.attrs) == {
                "sim": True,
                "compress": False,
                "fps": 10.0,
                "instruction": start.instruction,
                "task": "go-to-block",
                "success": True,
                "embodiment": "pointer-gantry",
                "origin_policy": "scripted-expert",
                "origin_purpose": "record",
                "origin_seed": 9,
            }


def test_without_cameras(tmp_path: Path) -> None:
    report = record(tmp_path, 3, 0, cameras=())
    assert report.cameras == ()
    with h5py.File(report.files[2]) as file:
        assert sorted(file["observations"]) == ["env_state", "qpos", "qvel"]
        assert file["action"].shape == (report.lengths[2], 3)


def test_a_rollout_is_recorded_with_its_outcome(tmp_path: Path, blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.ASSESS, 0, 2)
    result = rollout(RandomPolicy(), blind_scene, start, seed=3)
    path = tmp_path / "episode_0.hdf5"
    origin: dict[str, str | int] = {"policy": "step_00000100", "purpose": "assess", "seed": 0}
    write_episode(path, result, blind_scene.config, origin=origin)
    with h5py.File(path) as file:
        assert file.attrs["success"] == result.success
        assert file.attrs["origin_policy"] == "step_00000100"
        assert file.attrs["origin_purpose"] == "assess"


def test_recordings_are_never_mixed_or_overwritten(tmp_path: Path) -> None:
    record(tmp_path, 1, 0, cameras=())
    before = (tmp_path / "episode_0.hdf5").read_bytes()
    with pytest.raises(SimulationError, match="already holds episodes"):
        record(tmp_path, 1, 1, cameras=())
    assert (tmp_path / "episode_0.hdf5").read_bytes() == before
    with pytest.raises(SimulationError, match="at least one episode"):
        record(tmp_path / "new", 0, 0, cameras=())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SimulationError, match=r"cannot write .*episode_0\.hdf5"):
        record(tmp_path / "file", 1, 0, cameras=())


def test_killed_while_writing_leaves_no_episode(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
import h5py
from training.simulation.recorder import record
create = h5py.Group.create_dataset
def die(group, name, **arguments):
    if name == "action":
        group.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return create(group, name, **arguments)
h5py.Group.create_dataset = die
record(Path(sys.argv[1]), 1, 0, cameras=())
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], check=False, timeout=60)
    assert done.returncode == -9
    assert list(tmp_path.glob("episode_*.hdf5")) == []
    assert record(tmp_path, 1, 0, cameras=()).successes == 1
