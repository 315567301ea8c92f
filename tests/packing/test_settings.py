"""Choices that no plan can be made with are refused with what to use instead."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.cost import CostModel
from packing.errors import PlanError
from packing.plan_header import PackShape
from packing.settings import MAX_BUDGET, PlanSettings


@pytest.mark.parametrize(
    ("budget", "use"), [(1000, 1024), (1, 128), (0, 128), (-128, 128), (8191, 8192)]
)
def test_budget_must_be_a_multiple_of_128_and_the_error_names_the_nearest(
    budget: int, use: int
) -> None:
    with pytest.raises(PlanError, match=rf"budget of {budget} tokens.*FP8.*use {use}$"):
        PlanSettings(budget_tokens=budget, slots_per_step=1)


@given(st.one_of(st.integers(-(1 << 33), 1 << 33), st.integers(-9, 1 << 18).map(lambda n: n * 128)))
def test_a_budget_is_a_multiple_of_128_far_inside_int32_or_refused(budget: int) -> None:
    if 0 < budget <= MAX_BUDGET and budget % 128 == 0:
        assert PlanSettings(budget_tokens=budget, slots_per_step=1).budget_tokens == budget
        return
    reason = "int32" if budget > 0 and budget % 128 == 0 else "multiple of 128"
    with pytest.raises(PlanError, match=reason):
        PlanSettings(budget_tokens=budget, slots_per_step=1)


def test_what_no_offset_of_a_batch_can_count_is_refused() -> None:
    sizes: dict[str, int] = dict.fromkeys(PackShape.__dataclass_fields__, 1)
    PackShape(**{**sizes, "states": (1 << 31) - 1})
    with pytest.raises(PlanError, match=r"would hold 2147483648 images, .* int32"):
        PackShape(**{**sizes, "images": 1 << 31})


@pytest.mark.parametrize(
    "changes",
    [
        {"slots_per_step": 0},
        {"epochs": 0},
        {"look_ahead": 0},
        {"open_runs": -1},
        {"run_length": 0},
        {"lanes": 0},
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


def test_lanes_must_divide_the_slots() -> None:
    with pytest.raises(PlanError, match="3 lanes do not divide the 8 slots of a step"):
        PlanSettings(budget_tokens=128, slots_per_step=8, lanes=3)
    assert PlanSettings(budget_tokens=128, slots_per_step=8, lanes=4).lanes == 4
