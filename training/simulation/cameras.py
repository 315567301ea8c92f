"""Pictures of the scene, where the machine can make an OpenGL context."""

import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from training.simulation.errors import RenderingUnavailableError
from training.simulation.simulator import load_mujoco


class Cameras:
    """Renders named cameras of a MuJoCo model off screen; close it or use it with `with`.

    Raises:
        RenderingUnavailableError: no OpenGL context can be made here.
    """

    def __init__(self, model: Any, names: tuple[str, ...], image_size: int) -> None:  # noqa: ANN401  mujoco ships no types
        mujoco = load_mujoco()
        try:
            self._renderer = mujoco.Renderer(model, image_size, image_size)
        except Exception as error:  # each GL back end fails with types of its own
            raise RenderingUnavailableError(
                f"no OpenGL context with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}:"
                f" {type(error).__name__}: {error}. Install a software renderer (Debian: libegl1"
                " and libgl1-mesa-dri, or libosmesa6 with MUJOCO_GL=osmesa), or go on without"
                " cameras (--no-cameras)"
            ) from error
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0
        self.names = names

    def render(self, data: Any) -> dict[str, NDArray[np.uint8]]:  # noqa: ANN401  mujoco ships no types
        """Camera name -> uint8 [H, W, 3] RGB of the state in `data` (a `mujoco.MjData`)."""
        pictures = {}
        for name in self.names:
            self._renderer.update_scene(data, camera=name)
            pictures[name] = self._renderer.render()
        return pictures

    def close(self) -> None:
        """Release the OpenGL context."""
        self._renderer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
