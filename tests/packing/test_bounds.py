"""The certificate against independent derivations."""

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from packing.bounds import certify, l2_bound
from packing.packs import Load, loads_of
from packing.settings import PlanSettings
from tests.packing.synthetic import spans_of_lengths

BUDGET = 20
sizes = st.lists(st.integers(0, BUDGET), min_size=1, max_size=9)


def by_definition(items: list[int], limit: int) -> int:
    """Martello and Toth's L2, item by item, for every threshold."""
    best = 0
    for a in range(limit // 2 + 1):
        j1 = [s for s in items if s > limit - a]
        j2 = [s for s in items if limit / 2 < s <= limit - a]
        j3 = [s for s in items if a <= s <= limit / 2]
        over = sum(j3) - (len(j2) * limit - sum(j2))
        best = max(best, len(j1) + len(j2) + max(0, -(-over // limit)))
    return best


def optimum(items: list[int], limit: int) -> int:
    """Fewest packs, by exhaustive search."""

    @cache
    def fewest(left: tuple[int, ...], rooms: tuple[int, ...]) -> int:
        if not left:
            return len(rooms)
        size, rest = left[0], left[1:]
        best = fewest(rest, tuple(sorted((*rooms, limit - size))))
        for room in set(rooms):
            if room >= size:
                others = list(rooms)
                others.remove(room)
                best = min(best, fewest(rest, tuple(sorted((*others, room - size)))))
        return best

    return fewest(tuple(sorted(items, reverse=True)), ())


def histogram(items: list[int], limit: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.bincount(items, minlength=limit + 1).astype(np.int64)


@given(st.lists(st.integers(0, BUDGET), max_size=40), st.sampled_from([BUDGET, BUDGET + 1]))
def test_equals_the_definition_for_even_and_odd_limits(items: list[int], limit: int) -> None:
    assert l2_bound(histogram(items, limit), limit) == by_definition(items, limit)


def test_a_cap_far_beyond_what_there_is_costs_no_memory() -> None:
    tokens = Load(name="tokens", per_span=np.full(10, 60), limit=128)
    images = Load(name="images", per_span=np.full(10, 3), limit=1 << 60)
    assert certify([tokens, images], packs=5).bounds == {"tokens": 5, "images": 1}


@given(sizes)
def test_no_packing_uses_fewer(items: list[int]) -> None:
    bound, best = l2_bound(histogram(items, BUDGET), BUDGET), optimum(items, BUDGET)
    assert bound <= best
    assert bound >= -(-sum(items) // BUDGET)


def test_bound_is_more_than_the_sum_where_large_items_cannot_share() -> None:
    assert l2_bound(histogram([11] * 10, BUDGET), BUDGET) == 10
    assert l2_bound(histogram([11] * 10 + [9] * 10, BUDGET), BUDGET) == 10


def test_the_largest_dimension_binds() -> None:
    tokens = Load(name="tokens", per_span=np.full(10, 2), limit=BUDGET)
    images = Load(name="images", per_span=np.full(10, 3), limit=4)
    certificate = certify([tokens, images], packs=12)
    assert certificate.bounds == {"tokens": 1, "images": 10}
    assert (certificate.binding, certificate.bound) == ("images", 10)
    assert certificate.packs_over_bound == 1.2


def test_tokens_bind_among_equals() -> None:
    settings = PlanSettings(budget_tokens=128, slots_per_step=1, max_spans=1)
    loads = loads_of(spans_of_lengths([100, 100]), settings)
    assert certify(loads, 2).binding == "tokens"
