"""Who acts: what a policy must offer, the random one, and the expert as one."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.simulation.expert import expert_action
from training.simulation.scene import Observation, Scene


class Policy(Protocol):
    """What a trained policy offers at inference."""

    def reset(self, seed: int) -> None:
        """Start a new episode; whatever the policy draws from now on follows from `seed`."""

    def act(
        self,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[np.float32],
        instruction: str,
    ) -> NDArray[np.floating]:
        """Choose the next actions.

        Args:
            images: camera name -> uint8 [H, W, 3] RGB.
            state: float32 [Ds], raw units as recorded.
            instruction: the request in words.

        Returns:
            [horizon, Da] actions in raw units, the first to be taken now.
        """


Actor = Callable[[Observation], NDArray[np.floating]]
"""Chooses the chunk of actions [steps, 3] to execute next from what is seen now."""


class RandomPolicy:
    """Moves each chunk in a random direction at the demonstrations' speed: the floor to beat."""

    def __init__(self, *, horizon: int = 8, reach_m: float = 0.024) -> None:
        self._rng = np.random.default_rng()
        self._shape = (horizon, 1)
        self._reach_m = reach_m

    def reset(self, seed: int) -> None:
        """Start a new episode."""
        self._rng = np.random.default_rng(seed)

    def act(
        self,
        images: Mapping[str, NDArray[np.uint8]],  # noqa: ARG002  looks at nothing
        state: NDArray[np.float32],  # noqa: ARG002
        instruction: str,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """One displacement, uniform in a cube, repeated for the chunk."""
        return np.tile(self._rng.uniform(-self._reach_m, self._reach_m, 3), self._shape)


def policy_actor(policy: Policy, instruction: str, *, execute: int, privileged: bool) -> Actor:
    """Execute the first `execute` actions of each chunk the policy chooses, then ask again.

    A `privileged` policy's state is that of the tip followed by that of the blocks.
    """

    def actor(seen: Observation) -> NDArray[np.floating]:
        state = np.concatenate([seen.state, seen.env_state]) if privileged else seen.state
        return policy.act(seen.images, state, instruction)[:execute]

    return actor


def expert_actor(scene: Scene) -> Actor:
    """The scripted expert, asked at every step; goes to the block that `scene.start` asks for."""
    return lambda seen: expert_action(scene, seen, target=scene.start.target)[None]
