from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from training.simulation.errors import PolicyMismatchError, SimulationError
from training.simulation.policies import RandomPolicy
from training.simulation.rollout import RolloutResult, rollout
from training.simulation.scene import Scene
from training.simulation.task import Purpose, sample_start


class Recorder:
    """Returns chunks that tell which call they came from, and keeps what it was asked."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.asked: list[tuple[NDArray[np.float32], str]] = []

    def reset(self, seed: int) -> None:
        assert self.asked == []
        self.seed = seed

    def act(
        self,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[np.float32],
        instruction: str,
    ) -> NDArray[np.float64]:
        assert images == {}
        self.asked.append((state, instruction))
        chunk = np.zeros((self.horizon, 3))
        chunk[:, 2] = 1e-4 * len(self.asked) + 1e-6 * np.arange(self.horizon)
        return chunk


@pytest.mark.parametrize(("horizon", "execute", "executed"), [(8, 6, 6), (8, 8, 8), (4, 6, 4)])
def test_chunks_are_executed_to_the_agreed_length(
    blind_scene: Scene, horizon: int, execute: int, executed: int
) -> None:
    policy = Recorder(horizon)
    start = sample_start(blind_scene.config, Purpose.ASSESS, 0, 0)
    result = rollout(policy, blind_scene, start, seed=0, execute=execute)
    steps = blind_scene.config.max_steps
    assert result.steps == steps
    assert len(policy.asked) == -(-steps // executed)
    calls, places = np.divmod(np.arange(steps), executed)
    np.testing.assert_allclose(result.actions[:, 2], 1e-4 * (calls + 1) + 1e-6 * places, rtol=1e-5)
    for call, (state, instruction) in enumerate(policy.asked):
        assert instruction == start.instruction
        np.testing.assert_array_equal(state, result.states[call * executed])


def test_states_are_those_before_their_actions(blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.ASSESS, 0, 1)
    result = rollout(RandomPolicy(), blind_scene, start, seed=0)
    np.testing.assert_allclose(result.states[0], start.tip, atol=1e-6)
    np.testing.assert_array_equal(result.velocities[0], np.zeros(3))
    assert result.success == (result.touched == start.target)


def test_a_privileged_policy_is_told_where_the_blocks_are(blind_scene: Scene) -> None:
    policy = Recorder(8)
    start = sample_start(blind_scene.config, Purpose.ASSESS, 0, 0)
    rollout(policy, blind_scene, start, seed=0, privileged=True)
    state, _ = policy.asked[0]
    np.testing.assert_allclose(state, [*start.tip, *start.blocks[:, :2].ravel()], atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (0, 3), (4, 2), (1, 4, 3)])
def test_chunks_of_other_shapes_are_refused(blind_scene: Scene, shape: tuple[int, ...]) -> None:
    class Wrong(Recorder):
        def act(self, *_: object) -> NDArray[np.float64]:
            return np.zeros(shape)

    start = sample_start(blind_scene.config, Purpose.ASSESS, 0, 0)
    with pytest.raises(PolicyMismatchError):
        rollout(Wrong(1), blind_scene, start, seed=0)


def test_uneven_results_are_refused(blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.ASSESS, 0, 0)
    rows = np.zeros((4, 3), np.float32)
    with pytest.raises(SimulationError, match="top: 3 rows for 4 steps"):
        RolloutResult(
            start=start, success=False, touched=None,
            states=rows, velocities=rows, env_states=rows, actions=rows,
            images={"top": np.zeros((3, 8, 8, 3), np.uint8)},
        )  # fmt: skip
