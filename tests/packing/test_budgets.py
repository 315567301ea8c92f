"""Suggested budgets pad less than the one wished for."""

import numpy as np

from packing.budgets import suggest_budgets
from packing.packs import Load
from packing.settings import MAX_BUDGET, PlanSettings
from packing.shuffle_fill import shuffle_fill


def padding(tokens: np.ndarray[tuple[int], np.dtype[np.int32]], budget: int) -> float:
    load = Load(name="tokens", per_span=tokens, limit=budget)
    packs = len(shuffle_fill(np.arange(len(tokens)), [load], 1024))
    return 1 - float(tokens.sum()) / (packs * budget)


def test_near_equal_windows() -> None:
    tokens = np.random.default_rng(0).integers(1100, 1110, 3000).astype(np.int32)
    wished = 8192
    best = suggest_budgets(tokens, wished)
    assert padding(tokens, wished) > 0.05
    assert padding(tokens, best[0].budget_tokens) < 0.02
    assert [s.padding for s in best] == sorted(s.padding for s in best)
    for suggestion in best:
        assert suggestion.budget_tokens % 128 == 0
        assert wished * 0.75 <= suggestion.budget_tokens <= wished * 1.25


def test_never_below_the_longest_span() -> None:
    tokens = np.array([900] * 50 + [1000], np.int32)
    assert all(s.budget_tokens >= 1024 for s in suggest_budgets(tokens, 1024))


def test_no_budget_in_reach_is_no_suggestion() -> None:
    assert suggest_budgets(np.array([5000], np.int32), 1024) == []


def test_never_above_the_largest_budget() -> None:
    tokens = np.full(40, MAX_BUDGET // 3 + 1, np.int32)
    best = suggest_budgets(tokens, MAX_BUDGET)
    assert best
    for suggestion in best:
        PlanSettings(budget_tokens=suggestion.budget_tokens, slots_per_step=1)
