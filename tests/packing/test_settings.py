"""Choices that no plan can be made with are refused with what to use instead."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from packing.cost import CostModel
from packing.errors import PlanError
from packing.settings import PlanSettings


@pytest.mark.parametrize(
    ("budget", "use"), [(1000, 1024), (1, 128), (0, 128), (-128, 128), (8191, 8192)]
)
def test_budget_must_be_a_multiple_of_128_and_the_error_names_the_nearest(
    budget: int, use: int
) -> None:
    with pytest.raises(PlanError, match=rf"budget of {budget} tokens.*FP8.*use {use}$"):
        PlanSettings(budget_tokens=budget, slots_per_step=1)


def test_budget_keeps_cu_seqlens_inside_int32() -> None:
    with pytest.raises(PlanError, match="int32"):
        PlanSettings(budget_tokens=1 << 25, slots_per_step=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"slots_per_step": 0},
        {"epochs": 0},
        {"look_ahead": 0},
        {"open_runs": -1},
        {"run_length": 0},
        {"max_images": 0},
        {"seed": -1},
        {"packer": "worst-fit"},
    ],
)
def test_nonsense_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(changes))):
        PlanSettings(**{"budget_tokens": 128, "slots_per_step": 1, **changes})


def test_settings_come_back_from_json() -> None:
    cost = CostModel(per_token=7, per_square=2, per_image=3, per_pack=4)
    settings = PlanSettings(budget_tokens=128, slots_per_step=1, cost=cost)
    assert PlanSettings.from_dict(json.loads(json.dumps(asdict(settings)))) == settings
