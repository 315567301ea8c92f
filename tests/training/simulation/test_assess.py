import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lake.store import Lake
from training.simulation.assess import Assessment, Score, assess
from training.simulation.errors import SimulationError
from training.simulation.evaluations import assessment_json, write_evaluation
from training.simulation.expert import expert_action
from training.simulation.picture import save_rollout_picture
from training.simulation.policies import RandomPolicy
from training.simulation.scene import Scene
from training.simulation.task import COLOURS, Purpose, SceneConfig, instruction_for


class Listener:
    """The expert behind a policy's face: goes where it is *told*, not where it is scored."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def reset(self, seed: int) -> None:
        pass

    def act(
        self, images: object, state: NDArray[np.float32], instruction: str
    ) -> NDArray[np.float64]:
        del images, state
        told = [instruction_for(c) for c in self.scene.config.colours].index(instruction)
        return expert_action(self.scene, self.scene.observe(), target=told)[None]


@pytest.fixture(scope="module")
def heard(blind_scene: Scene) -> Assessment:
    return assess(Listener(blind_scene), blind_scene, name="listener", episodes=9, seed=0, keep=2)


def test_scores_of_a_policy_that_listens(blind_scene: Scene, heard: Assessment) -> None:
    assert heard.total == Score(successes=9, wrong=0, episodes=9)
    assert heard.total.interval == pytest.approx((0.70085, 1.0), abs=1e-5)
    assert set(heard.by_instruction) == {instruction_for(c) for c in list(COLOURS)[:3]}
    assert {s.episodes for s in heard.by_instruction.values()} == {3}
    assert len(heard.samples) == 2
    assert heard.mean_steps is not None
    assert heard.mean_steps > 3
    misled = assess(
        Listener(blind_scene), blind_scene, name="misled", episodes=9, seed=0, misinform=True
    )
    assert misled.total == Score(successes=0, wrong=9, episodes=9)
    assert misled.mean_steps is None
    assert misled.samples == ()


def test_random_policy_is_poor_and_repeatable(blind_scene: Scene) -> None:
    first, second = (
        assess(RandomPolicy(), blind_scene, name="random", episodes=6, seed=0, purpose=Purpose.EXAM)
        for _ in range(2)
    )
    assert first.total == second.total
    assert first.total.successes <= 3
    assert first.total.episodes == 6


def test_nothing_to_assess_is_refused(blind_scene: Scene) -> None:
    with pytest.raises(SimulationError, match="at least one episode"):
        assess(RandomPolicy(), blind_scene, name="random", episodes=0, seed=0)


def test_an_evaluation_is_one_row_however_often_written(lake: Lake, heard: Assessment) -> None:
    first = write_evaluation(lake, heard, run_id="run-1", checkpoint="step_00000100")
    assert write_evaluation(lake, heard, run_id="run-1", checkpoint="step_00000100") == first
    other = write_evaluation(lake, heard, run_id=None, checkpoint="step_00000200")
    assert other != first
    rows = {row["evaluation_id"]: row for row in lake.latest("evaluations").to_table().to_pylist()}
    assert set(rows) == {first, other}
    row = rows[first]
    assert (row["run_id"], row["checkpoint"]) == ("run-1", "step_00000100")
    assert (row["task"], row["episodes"], row["successes"]) == ("go-to-block", 9, 9)
    assert (row["wilson_low"], row["wilson_high"]) == heard.total.interval
    assert row["time_ns"] > 0
    assert json.loads(row["detail_json"]) == assessment_json(heard)
    assert rows[other]["run_id"] is None


def test_pictures_with_and_without_cameras(
    tmp_path: Path, heard: Assessment, seeing_scene: Scene
) -> None:
    blind, seen = tmp_path / "a" / "blind.png", tmp_path / "seen.png"
    save_rollout_picture(blind, heard.samples, title="paths")
    random = assess(RandomPolicy(), seeing_scene, name="random", episodes=1, seed=0, keep=1)
    save_rollout_picture(seen, random.samples)
    for path in (blind, seen):
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert seen.stat().st_size > 10_000
    with pytest.raises(SimulationError, match="no played episode"):
        save_rollout_picture(blind, [])
    with pytest.raises(SimulationError, match="cannot write the picture"):
        save_rollout_picture(tmp_path / "x.nonsense", heard.samples)


def test_four_colours() -> None:
    with Scene(SceneConfig(num_blocks=4), cameras=()) as scene:
        result = assess(Listener(scene), scene, name="listener", episodes=4, seed=1)
    assert len(result.by_instruction) == 4
    assert result.total.successes == 4
