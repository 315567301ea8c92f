from collections import Counter

import numpy as np
import pytest

from training.simulation.errors import SimulationError
from training.simulation.task import (
    BLOCK_HALF_M,
    COLOURS,
    WORKSPACE_M,
    Purpose,
    SceneConfig,
    Start,
    sample_start,
)

CONFIG = SceneConfig()


def _numbers(start: Start) -> tuple[float, ...]:
    return (*start.blocks.ravel(), *start.tip, start.target, start.speed_m_s)


def test_same_arguments_same_start() -> None:
    first, second = (sample_start(CONFIG, Purpose.RECORD, 3, 5) for _ in range(2))
    assert _numbers(first) == _numbers(second)
    assert first.instruction == second.instruction


def test_no_start_recurs_across_purposes_seeds_or_episodes() -> None:
    starts = {
        _numbers(sample_start(CONFIG, purpose, seed, episode))
        for purpose in Purpose
        for seed in range(5)
        for episode in range(20)
    }
    assert len(starts) == 3 * 5 * 20


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 4])
def test_starts_are_fair(num_blocks: int) -> None:
    config = SceneConfig(num_blocks=num_blocks)
    asked: Counter[str] = Counter()
    for episode in range(8 * num_blocks):
        start = sample_start(config, Purpose.ASSESS, 0, episode)
        asked[start.instruction] += 1
        places = start.blocks[:, :2]
        assert (np.abs(places) + BLOCK_HALF_M < WORKSPACE_M).all()
        for index, place in enumerate(places):
            assert np.hypot(*(place - start.tip[:2])) > 1.5 * BLOCK_HALF_M
            for other in places[:index]:
                # Blocks are turned at random: the diagonal counts.
                assert np.hypot(*(place - other)) > 2 * np.sqrt(2) * BLOCK_HALF_M
    assert asked == {f"go to the {c} block": 8 for c in list(COLOURS)[:num_blocks]}


@pytest.mark.parametrize(
    "choice",
    [
        {"num_blocks": 0},
        {"num_blocks": 5},
        {"image_size": 8},
        {"image_size": 1024},
        {"control_hz": 0},
        {"max_steps": 0},
    ],
)
def test_impossible_scenes_are_refused(choice: dict[str, int]) -> None:
    with pytest.raises(SimulationError):
        SceneConfig(**choice)
