"""Budgets that fit: near-equal spans leave a gap at the end of every pack unless chosen for."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from packing.packs import Load
from packing.seeded import STREAM_SAMPLE, permutation
from packing.settings import MAX_BUDGET, TOKEN_MULTIPLE
from packing.shuffle_fill import shuffle_fill
from packing.spans import Int32s

_SAMPLE: Final = 16384
_TRIED: Final = 8


@dataclass(frozen=True, kw_only=True)
class BudgetSuggestion:
    """A budget, and the padding that a sample of the spans has with it."""

    budget_tokens: int
    padding: float


def suggest_budgets(tokens: Int32s, near: int, *, seed: int = 0) -> list[BudgetSuggestion]:
    """Budgets within a quarter of `near` that pad least, the best first, at most three.

    Candidates are ranked by how far they are from the sums that k spans can make, and the best of
    them are tried by packing a sample.

    Args:
        tokens: int32 [n], length of every span.
        near: the budget wished for.
        seed: of the sample.
    """
    least = int(tokens.max())
    first = -(-max(least, near * 3 // 4) // TOKEN_MULTIPLE)
    last = min(near * 5 // 4, MAX_BUDGET) // TOKEN_MULTIPLE
    candidates = [TOKEN_MULTIPLE * k for k in range(first, last + 1)]
    sample = tokens[permutation(len(tokens), seed, STREAM_SAMPLE)[:_SAMPLE]]
    candidates.sort(key=lambda budget: (_gap(sample, budget), abs(budget - near)))
    tried = [
        BudgetSuggestion(budget_tokens=budget, padding=_padding(sample, budget))
        for budget in candidates[:_TRIED]
    ]
    return sorted(tried, key=lambda s: (s.padding, abs(s.budget_tokens - near)))[:3]


def _gap(sample: Int32s, budget: int) -> float:
    """Share of the budget between it and the nearest sum below that typical spans can make."""
    mean = float(sample.mean())
    small, large = np.quantile(sample, (0.05, 0.95))
    count = int((budget - small) // mean) + 1  # the most spans that can be made to fit
    return max(0.0, budget - ((count - 1) * mean + float(large))) / budget


def _padding(sample: Int32s, budget: int) -> float:
    """Padding of all packs but the last tenth, where the sample runs out."""
    load = Load(name="tokens", per_span=sample, limit=budget)
    sums = shuffle_fill(np.arange(len(sample)), [load], 1024).sum(sample)
    kept = sums[: max(1, len(sums) * 9 // 10)]
    return 1.0 - float(kept.sum()) / (len(kept) * budget)
