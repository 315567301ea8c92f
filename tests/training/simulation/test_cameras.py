import os
import subprocess
import sys

import pytest

_SCRIPT = """
from training.simulation.errors import RenderingUnavailableError, SimulationError
from training.simulation.policies import expert_actor
from training.simulation.rollout import play
from training.simulation.scene import Scene
from training.simulation.task import Purpose, sample_start
try:
    Scene()
except RenderingUnavailableError as error:
    print(error)
with Scene(cameras=()) as scene:
    start = sample_start(scene.config, Purpose.RECORD, 0, 0)
    print(play(scene, start, expert_actor(scene)).success)
"""


def _run(script: str, gl: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MUJOCO_GL": gl, "DISPLAY": ""}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_without_opengl_cameras_are_refused_by_name_and_physics_goes_on() -> None:
    done = _run(_SCRIPT, "disable")
    assert done.returncode == 0, done.stderr
    message, success = done.stdout.strip().splitlines()
    assert message.startswith("no OpenGL context with MUJOCO_GL=disable")
    assert "--no-cameras" in message
    assert success == "True"


def test_a_back_end_that_does_not_exist_is_named() -> None:
    script = (
        "from training.simulation.errors import SimulationError\n"
        "from training.simulation.simulator import load_mujoco\n"
        "try:\n    load_mujoco()\nexcept SimulationError as error:\n    print(error)\n"
    )
    done = _run(script, "no-such-thing")
    assert done.returncode == 0, done.stderr
    assert "MUJOCO_GL=no-such-thing" in done.stdout
    assert "unset MUJOCO_GL" in done.stdout


def test_nothing_but_a_scene_imports_mujoco() -> None:
    script = (
        "import sys\n"
        "import training.simulation.assess, training.simulation.recorder\n"
        "import training.simulation.picture\n"
        "heavy = {'mujoco', 'h5py', 'matplotlib', 'torch'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    done = _run(script, "disable")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from training.simulation.errors import SimulatorMissingError
    from training.simulation.simulator import load_mujoco

    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(SimulatorMissingError, match=r"pip install 'headrace\[sim\]'"):
        load_mujoco()
