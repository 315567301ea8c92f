from typing import Literal

import pytest

from training.config import OptimizerConfig
from training.schedule import learning_rate


def test_rises_linearly_then_falls_to_the_final_share() -> None:
    config = OptimizerConfig(lr=2.0, warmup_steps=4, final_lr_share=0.1)
    rates = [learning_rate(step, total_steps=21, config=config) for step in range(21)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == 2.0
    assert rates[12] == pytest.approx(2.0 * 0.55)
    assert rates[20] == pytest.approx(0.2)
    assert rates[4:] == sorted(rates[4:], reverse=True)


@pytest.mark.parametrize("total", [1, 4, 5, 6])
def test_runs_shorter_than_the_warm_up_are_legal(total: int) -> None:
    config = OptimizerConfig(lr=1.0, warmup_steps=5)
    rates = [learning_rate(step, total_steps=total, config=config) for step in range(total)]
    assert all(0.0 <= rate <= 1.0 for rate in rates)


def test_stays_at_the_end_beyond_it() -> None:
    config = OptimizerConfig(lr=1.0, warmup_steps=0, final_lr_share=0.2)
    assert learning_rate(50, total_steps=10, config=config) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("linear", [1.0, 0.8, 0.6, 0.4, 0.2]), ("constant", [1.0] * 5)],
)
def test_it_falls_as_it_is_told(
    schedule: Literal["linear", "constant"], rates: list[float]
) -> None:
    config = OptimizerConfig(lr=1.0, warmup_steps=0, schedule=schedule, final_lr_share=0.2)
    found = [learning_rate(step, total_steps=5, config=config) for step in range(5)]
    assert found == pytest.approx(rates)
