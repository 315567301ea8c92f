"""Whole epochs: each span as often as asked, and a certificate of what was really packed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from packing.arrange import Arrangement, arrange
from packing.balance import max_over_mean, pack_costs
from packing.bounds import certify
from packing.errors import PackingError
from packing.packs import loads_of
from packing.settings import PlanSettings
from tests.packing.synthetic import lognormal_lengths, spans_of_lengths

BUDGET = 128


def settings(**changes: Any) -> PlanSettings:
    return PlanSettings(**{"budget_tokens": BUDGET, "slots_per_step": 3, "open_runs": 4, **changes})


def occurrences(arranged: Arrangement, epoch: int, spans: int) -> list[int]:
    of_item = np.repeat(arranged.epoch, arranged.packing.sizes)
    counts: list[int] = np.bincount(
        arranged.packing.items[of_item == epoch], minlength=spans
    ).tolist()
    return counts


@given(
    st.lists(st.tuples(st.integers(1, BUDGET), st.integers(0, 4)), min_size=1, max_size=40),
    st.sampled_from(["shuffle-fill", "bfd"]),
    st.integers(1, 7),
)
def test_every_span_occurs_as_often_as_counted(
    drawn: list[tuple[int, int]], packer: str, length: int
) -> None:
    tokens, times = (np.array(column) for column in zip(*drawn, strict=True))
    spans, runs = spans_of_lengths(tokens), np.arange(len(tokens)) // length
    asked = [times, np.roll(times, 1)]
    if not times.any():
        with pytest.raises(PackingError, match="epoch 0 has no span"):
            arrange(spans, runs, settings(packer=packer), asked.__getitem__)
        return
    arranged = arrange(spans, runs, settings(packer=packer, epochs=2), asked.__getitem__)
    for epoch in (0, 1):
        assert occurrences(arranged, epoch, len(spans)) == asked[epoch].tolist()
    assert (arranged.packing.sum(spans.tokens) <= BUDGET).all()


def test_counts_of_one_are_the_plan_without_counts() -> None:
    spans, runs = spans_of_lengths(np.arange(1, 101)), np.arange(100) // 3
    plain = arrange(spans, runs, settings(epochs=2))
    ones = arrange(spans, runs, settings(epochs=2), lambda _: np.ones(100, np.int64))
    assert np.array_equal(plain.packing.items, ones.packing.items)
    assert np.array_equal(plain.packing.offsets, ones.packing.offsets)
    assert plain.certificate == ones.certificate


@pytest.mark.parametrize("counts", [np.ones(3, np.int64), np.full(4, -1), np.ones(4)])
def test_counts_that_are_none_are_refused(counts: NDArray[Any]) -> None:
    with pytest.raises(PackingError, match=r"counts of spans .* must be \(4,\) integers"):
        arrange(spans_of_lengths([9] * 4), np.arange(4), settings(), lambda _: counts)


def test_certificate_is_of_the_epoch_worst_against_its_own_bound() -> None:
    """Not of the one with the most packs: epochs of other multisets have bounds of their own."""
    spans = spans_of_lengths([128, 43])
    table = [np.array([9, 0]), np.array([0, 5])]
    arranged = arrange(spans, np.arange(2), settings(epochs=2), table.__getitem__)
    # Nine packs of one span each are optimal; five spans of 43 fill three packs, 215 tokens two.
    assert arranged.certificate == certify(loads_of(spans, settings()), 3, table[1])
    assert (arranged.certificate.packs, arranged.certificate.bound) == (3, 2)


@pytest.mark.parametrize(("slots", "worst"), [(8, 1.05), (64, 1.05), (512, 1.08)])
@pytest.mark.parametrize(("step", "count"), [(1, 250_000), (4, 100_000), (16, 50_000)])
def test_ranks_are_balanced_on_lengths_of_episodes(
    step: int, count: int, slots: int, worst: float
) -> None:
    spans = spans_of_lengths(lognormal_lengths(count, step=step))
    chosen = PlanSettings(budget_tokens=8192, slots_per_step=slots)
    arranged = arrange(spans, np.arange(len(spans)), chosen)
    cost = pack_costs(arranged.packing, spans, chosen.cost)
    whole = len(cost) // slots * slots - slots
    assert max_over_mean(cost[:whole], slots, slots) <= worst
