"""Loads MuJoCo with the OpenGL back end that this machine has."""

import ctypes
import os
import sys
from types import ModuleType

from training.simulation.errors import SimulationError, SimulatorMissingError


def load_mujoco() -> ModuleType:
    """The `mujoco` module.

    MuJoCo chooses its OpenGL back end once, when it is first imported. Unless `MUJOCO_GL` says
    otherwise, that is EGL on Linux, which needs no display; where the EGL library is missing the
    import itself would fail, so rendering is switched off there and physics goes on.

    Raises:
        SimulatorMissingError: mujoco is not installed.
        SimulationError: the back end that `MUJOCO_GL` names cannot be loaded.
    """
    if sys.platform == "linux" and "mujoco" not in sys.modules:
        os.environ.setdefault("MUJOCO_GL", "egl" if _has_library("libEGL.so.1") else "disable")
    try:
        import mujoco  # noqa: PLC0415  heavy and optional, and the line above must come first
    except ModuleNotFoundError as error:
        raise SimulatorMissingError(
            "the simulation needs MuJoCo: pip install 'headrace[sim]'"
        ) from error
    except Exception as error:
        raise SimulationError(
            f"mujoco cannot be imported with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}"
            f" ({type(error).__name__}: {error}); unset MUJOCO_GL, or set MUJOCO_GL=disable to go"
            " on without cameras"
        ) from error
    module: ModuleType = mujoco
    return module


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
