from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from training.simulation.errors import PolicyMismatchError, SimulationError
from training.simulation.expert import expert_action
from training.simulation.policies import RandomPolicy, expert_actor
from training.simulation.rollout import play, rollout
from training.simulation.scene import Scene
from training.simulation.task import COLOURS, TRAVEL_HEIGHT_M, Purpose, SceneConfig, sample_start


def test_an_episode_is_a_function_of_its_start(blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.RECORD, 1, 4)
    first = rollout(RandomPolicy(), blind_scene, start, seed=7)
    # Something else in between must leave no trace.
    play(
        blind_scene,
        sample_start(blind_scene.config, Purpose.RECORD, 1, 5),
        expert_actor(blind_scene),
    )
    with Scene(cameras=()) as fresh:
        for again in (
            rollout(RandomPolicy(), scene, start, seed=7) for scene in (blind_scene, fresh)
        ):
            np.testing.assert_array_equal(again.states, first.states)
            np.testing.assert_array_equal(again.velocities, first.velocities)
            np.testing.assert_array_equal(again.actions, first.actions)
            assert (again.success, again.touched) == (first.success, first.touched)


def test_reset_puts_everything_where_the_start_says(blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.ASSESS, 2, 0)
    seen = blind_scene.reset(start)
    np.testing.assert_allclose(seen.state, start.tip, atol=1e-6)
    np.testing.assert_array_equal(seen.velocity, np.zeros(3))
    np.testing.assert_allclose(blind_scene.block_positions()[:, :2], start.blocks[:, :2])
    np.testing.assert_allclose(seen.env_state, start.blocks[:, :2].ravel(), atol=1e-6)
    assert not blind_scene.done
    assert not blind_scene.success


def test_the_tip_follows_its_set_point_and_stops_at_the_ends(blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.ASSESS, 2, 1)
    blind_scene.reset(start)
    seen = blind_scene.step(np.array([0.01, -0.01, 0.005]))
    for _ in range(4):
        seen = blind_scene.step(np.zeros(3))
    np.testing.assert_allclose(seen.state, start.tip + np.array([0.01, -0.01, 0.005]), atol=1e-3)
    for _ in range(10):
        seen = blind_scene.step(np.array([0.1, 0.1, 0.1]))
    np.testing.assert_allclose(seen.state, [0.30, 0.30, 0.25], atol=2e-3)


def test_time_runs_out(blind_scene: Scene) -> None:
    blind_scene.reset(sample_start(blind_scene.config, Purpose.ASSESS, 2, 2))
    steps = 0
    while not blind_scene.done:
        blind_scene.step(np.zeros(3))
        steps += 1
    assert steps == blind_scene.config.max_steps
    assert blind_scene.touched is None
    assert not blind_scene.success


@pytest.mark.parametrize("block", [0, 1, 2])
def test_only_the_asked_block_counts(blind_scene: Scene, block: int) -> None:
    start = sample_start(blind_scene.config, Purpose.ASSESS, 3, 0)
    blind_scene.reset(start)
    goal = blind_scene.block_positions()[block]
    above = np.array([*goal[:2], TRAVEL_HEIGHT_M])
    blind_scene.step(above - start.tip)
    for _ in range(10):
        blind_scene.step(np.zeros(3))
    while not blind_scene.done:
        blind_scene.step(np.array([0.0, 0.0, -0.02]))
    assert blind_scene.steps > 12  # nothing was touched on the way there
    assert blind_scene.touched == block
    assert blind_scene.success == (block == start.target)


@pytest.mark.parametrize("num_blocks", [1, 3, 4])
def test_the_expert_succeeds(num_blocks: int) -> None:
    with Scene(SceneConfig(num_blocks=num_blocks), cameras=()) as scene:
        results = [
            play(scene, sample_start(scene.config, Purpose.RECORD, 11, n), expert_actor(scene))
            for n in range(20)
        ]
    assert sum(result.success for result in results) >= 0.95 * len(results)
    lengths = [result.steps for result in results]
    assert max(lengths) > 2 * min(lengths)  # episodes of several lengths


def test_the_expert_obeys_the_speed_of_the_start(blind_scene: Scene) -> None:
    start = sample_start(blind_scene.config, Purpose.RECORD, 11, 2)
    action = expert_action(blind_scene, blind_scene.reset(start), target=start.target)
    assert np.hypot(*action[:2]) == pytest.approx(start.speed_m_s / blind_scene.config.control_hz)


@pytest.mark.parametrize(
    "action", [np.zeros(2), np.zeros((1, 3)), np.array([0.0, np.nan, 0.0]), np.array([np.inf] * 3)]
)
def test_actions_that_do_not_fit_are_refused(
    blind_scene: Scene, action: NDArray[np.float64]
) -> None:
    blind_scene.reset(sample_start(blind_scene.config, Purpose.ASSESS, 2, 2))
    with pytest.raises(PolicyMismatchError, match="3 finite displacements"):
        blind_scene.step(action)


def test_misuse_is_named() -> None:
    with pytest.raises(SimulationError, match="no camera called 'side'"):
        Scene(cameras=("side",))
    with Scene(cameras=()) as scene:
        with pytest.raises(SimulationError, match="reset the scene"):
            _ = scene.start
        with pytest.raises(SimulationError, match="2 blocks in a scene of 3"):
            scene.reset(sample_start(SceneConfig(num_blocks=2), Purpose.RECORD, 0, 0))


def test_pictures_show_the_blocks_where_they_are(seeing_scene: Scene) -> None:
    size = seeing_scene.config.image_size
    for episode in range(3):
        start = sample_start(seeing_scene.config, Purpose.ASSESS, 5, episode)
        seen = seeing_scene.reset(start)
        for name in ("top", "wrist"):
            assert seen.images[name].shape == (size, size, 3)
            assert seen.images[name].dtype == np.uint8
        top = seen.images["top"].astype(int)
        for name, place in zip(seeing_scene.config.colours, start.blocks, strict=True):
            # The pixels nearest to the block's colour, wherever they are, must be its own.
            wanted = 255 * np.array(COLOURS[name])
            error = np.abs(top - wanted).sum(axis=2)
            rows, columns = np.nonzero(error <= error.min() + 60)
            # x runs right and y up; the top view spans 0.72 m.
            x = (columns.mean() + 0.5) / size * 0.72 - 0.36
            y = 0.36 - (rows.mean() + 0.5) / size * 0.72
            assert np.hypot(x - place[0], y - place[1]) < 0.03


def test_only_the_wrist_camera_travels(seeing_scene: Scene) -> None:
    start = replace(
        sample_start(seeing_scene.config, Purpose.ASSESS, 5, 0),
        blocks=np.array([[0.0, 0.12, 0.0], [0.2, 0.2, 0.0], [-0.2, -0.2, 0.0]]),
        tip=np.array([-0.05, 0.0, TRAVEL_HEIGHT_M]),
    )

    def red_columns(picture: NDArray[np.uint8]) -> float:
        levels = picture.astype(int)
        return float(np.nonzero(levels[:, :, 0] > levels[:, :, 1:].sum(axis=2))[1].mean())

    before = seeing_scene.reset(start).images
    for _ in range(4):
        after = seeing_scene.step(np.array([0.03, 0.0, 0.0])).images
    moved = {name: red_columns(after[name]) - red_columns(before[name]) for name in before}
    size = seeing_scene.config.image_size
    assert abs(moved["top"]) < 0.01 * size
    assert moved["wrist"] < -0.2 * size  # the pointer went right, so the block went left
