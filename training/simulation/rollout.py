"""Play one episode and keep what was seen and done."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from training.simulation.errors import PolicyMismatchError, SimulationError
from training.simulation.policies import Actor, Policy, policy_actor
from training.simulation.scene import Observation, Scene
from training.simulation.task import Start


@dataclass(frozen=True, kw_only=True)
class RolloutResult:
    """One played episode: T steps, each an observation and the action taken from it.

    Attributes:
        start: where it began and what was asked.
        success: whether the asked block was the first that was touched.
        touched: index of the block touched first, or None where time ran out.
        states: float32 [T, 3], tip position in metres.
        velocities: float32 [T, 3], metres per second.
        env_states: float32 [T, 2 * num_blocks], x and y of each block, metres (privileged).
        actions: float32 [T, 3], set-point displacements in metres.
        images: camera -> uint8 [T, H, W, 3]; empty without cameras.
    """

    start: Start
    success: bool
    touched: int | None
    states: NDArray[np.float32]
    velocities: NDArray[np.float32]
    env_states: NDArray[np.float32]
    actions: NDArray[np.float32]
    images: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = {
            "states": len(self.states),
            "velocities": len(self.velocities),
            "env_states": len(self.env_states),
            **{name: len(pictures) for name, pictures in self.images.items()},
        }
        for name, count in rows.items():
            if count != self.steps:
                raise SimulationError(f"{name}: {count} rows for {self.steps} steps")

    @property
    def steps(self) -> int:
        """Number of steps, T."""
        return len(self.actions)


def play(scene: Scene, start: Start, actor: Actor) -> RolloutResult:
    """Play an episode from `start` to its end with any actor.

    Raises:
        PolicyMismatchError: the actor's chunk is not [steps >= 1, 3] or not finite.
    """
    seen: list[Observation] = []
    taken: list[NDArray[np.float32]] = []
    chosen: deque[NDArray[np.float32]] = deque()
    observation = scene.reset(start)
    while not scene.done:
        if not chosen:
            chunk = np.asarray(actor(observation), dtype=np.float32)
            if chunk.ndim != 2 or len(chunk) == 0:
                raise PolicyMismatchError(
                    f"a policy must return actions [steps, 3], not {chunk.shape}"
                )
            chosen.extend(chunk)
        seen.append(observation)
        taken.append(chosen.popleft())
        observation = scene.step(taken[-1])
    return RolloutResult(
        start=start,
        success=scene.success,
        touched=scene.touched,
        states=np.stack([o.state for o in seen]),
        velocities=np.stack([o.velocity for o in seen]),
        env_states=np.stack([o.env_state for o in seen]),
        actions=np.stack(taken),
        images={name: np.stack([o.images[name] for o in seen]) for name in scene.cameras},
    )


def rollout(
    policy: Policy,
    scene: Scene,
    start: Start,
    *,
    seed: int,
    execute: int = 6,
    instruction: str | None = None,
    privileged: bool = False,
) -> RolloutResult:
    """Let a policy play one episode.

    Args:
        policy: who acts.
        scene: where.
        start: from where, and which block counts.
        seed: of what the policy draws.
        execute: actions of each chunk that are executed before the policy is asked again.
        instruction: what to tell the policy in place of the start's instruction.
        privileged: append where the blocks are to the state, for a policy trained so.
    """
    policy.reset(seed)
    told = start.instruction if instruction is None else instruction
    actor = policy_actor(policy, told, execute=execute, privileged=privileged)
    return play(scene, start, actor)
