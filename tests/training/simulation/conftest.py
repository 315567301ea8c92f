from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from training.simulation.errors import RenderingUnavailableError
from training.simulation.scene import Scene

if find_spec("mujoco") is None:  # importing it here would choose its OpenGL back end too early
    pytest.skip("the sim extra is not installed", allow_module_level=True)


@pytest.fixture(scope="session")
def blind_scene() -> Iterator[Scene]:
    """A scene without cameras, shared by tests: `reset` forgets everything."""
    with Scene(cameras=()) as scene:
        yield scene


@pytest.fixture(scope="session")
def seeing_scene() -> Iterator[Scene]:
    """A scene with both cameras; skips where the machine has no OpenGL."""
    try:
        scene = Scene()
    except RenderingUnavailableError as error:
        pytest.skip(str(error))
    with scene:
        yield scene
