"""The simulated world: reset it to a start, act on it, look at it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from training.simulation.cameras import Cameras
from training.simulation.errors import PolicyMismatchError, SimulationError
from training.simulation.mjcf import CAMERAS, TIMESTEP_S, scene_mjcf
from training.simulation.simulator import load_mujoco
from training.simulation.task import BLOCK_HALF_M, SceneConfig, Start

STATE_NAMES = ACTION_NAMES = ("x", "y", "z")


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a policy sees.

    Attributes:
        images: camera name -> uint8 [H, W, 3] RGB; empty without cameras.
        state: float32 [3], position of the tip in metres.
        velocity: float32 [3], metres per second.
        env_state: float32 [2 * num_blocks], x and y of each block in metres, in the order of
            `SceneConfig.colours`. Privileged: no camera is needed to know it.
    """

    images: dict[str, NDArray[np.uint8]]
    state: NDArray[np.float32]
    velocity: NDArray[np.float32]
    env_state: NDArray[np.float32]


class Scene:
    """A table with coloured blocks and a pointer on three axes, simulated by MuJoCo.

    An action is float [3]: how far the servos' set-point moves in x, y and z, metres per control
    period (a set-point stops at the ends of the axes, as on a real machine). The episode is over
    when the tip has touched a block (success if it is the asked one) or after `max_steps`.

    Args:
        config: sizes and rates.
        cameras: cameras to render, of `CAMERAS`; none needs no OpenGL.

    Raises:
        SimulatorMissingError: mujoco is not installed.
        RenderingUnavailableError: cameras were asked for and no OpenGL context can be made.
    """

    def __init__(
        self, config: SceneConfig | None = None, *, cameras: tuple[str, ...] = CAMERAS
    ) -> None:
        mujoco = load_mujoco()
        unknown = sorted(set(cameras) - set(CAMERAS))
        if unknown:
            raise SimulationError(f"no camera called {unknown[0]!r}; the scene has {CAMERAS}")
        self.config = config or SceneConfig()
        self._mujoco = mujoco
        self._model = mujoco.MjModel.from_xml_string(scene_mjcf(self.config))
        self._data = mujoco.MjData(self._model)
        self._cameras = Cameras(self._model, cameras, self.config.image_size) if cameras else None
        self.cameras = cameras
        self._substeps = max(1, round(1 / (self.config.control_hz * TIMESTEP_S)))
        self._tip = self._model.geom("tip").id
        self._blocks = [self._model.geom(f"block_{name}").id for name in self.config.colours]
        self._start: Start | None = None
        self.steps = 0
        self.touched: int | None = None

    @property
    def start(self) -> Start:
        """The start of the running episode; raises SimulationError before the first `reset`."""
        if self._start is None:
            raise SimulationError("reset the scene to a start first")
        return self._start

    @property
    def success(self) -> bool:
        """Whether the asked block was the first that the tip touched."""
        return self.touched == self.start.target

    @property
    def done(self) -> bool:
        """Whether a block was touched or time is up."""
        return self.touched is not None or self.steps >= self.config.max_steps

    def reset(self, start: Start) -> Observation:
        """Put everything where `start` says, at rest."""
        if len(start.blocks) != self.config.num_blocks:
            raise SimulationError(
                f"a start with {len(start.blocks)} blocks in a scene of {self.config.num_blocks}"
            )
        self._mujoco.mj_resetData(self._model, self._data)
        self._start, self.steps, self.touched = start, 0, None
        for name, (x, y, turn) in zip(self.config.colours, start.blocks, strict=True):
            self._data.joint(f"block_{name}").qpos = [
                *(x, y, BLOCK_HALF_M),
                *(np.cos(turn / 2), 0.0, 0.0, np.sin(turn / 2)),
            ]
        for axis, value in zip(STATE_NAMES, start.tip, strict=True):
            self._data.joint(axis).qpos = value
        self._data.ctrl[:] = start.tip
        self._mujoco.mj_forward(self._model, self._data)
        return self.observe()

    def step(self, action: NDArray[np.floating]) -> Observation:
        """Move the set-point by `action` [3] for one control period and look again.

        Raises:
            PolicyMismatchError: the action has another shape or is not finite.
        """
        if action.shape != (3,) or not np.isfinite(action).all():
            raise PolicyMismatchError(
                f"an action must be 3 finite displacements (x, y, z in metres), not {action}"
            )
        low, high = self._model.actuator_ctrlrange.T
        self._data.ctrl[:] = np.clip(self._data.ctrl + action, low, high)
        for _ in range(self._substeps):
            self._mujoco.mj_step(self._model, self._data)
            if self.touched is None:
                self.touched = self._touched_block()
        self.steps += 1
        return self.observe()

    def observe(self) -> Observation:
        """What is seen now."""
        return Observation(
            images=self._cameras.render(self._data) if self._cameras else {},
            state=self._data.qpos[-3:].astype(np.float32),
            velocity=self._data.qvel[-3:].astype(np.float32),
            env_state=self.block_positions()[:, :2].astype(np.float32).ravel(),
        )

    def block_positions(self) -> NDArray[np.float64]:
        """Where the blocks are now, float64 [num_blocks, 3] in metres; the expert may look."""
        return np.stack([self._data.geom_xpos[block] for block in self._blocks])

    def close(self) -> None:
        """Release the OpenGL context, if any."""
        if self._cameras is not None:
            self._cameras.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _touched_block(self) -> int | None:
        pairs = self._data.contact.geom  # int32 [contacts, 2]
        for first, second in pairs[(pairs == self._tip).any(axis=1)]:
            other = int(first + second - self._tip)
            if other in self._blocks:
                return self._blocks.index(other)
        return None
