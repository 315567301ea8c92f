"""Histogram best-fit decreasing against the item-by-item algorithm."""

from bisect import bisect_left, insort

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from packing.histogram_bfd import histogram_bfd, pack_histogram
from packing.packs import Load
from packing.seeded import permutation
from tests.packing.synthetic import lognormal_lengths

BUDGET = 40


def rooms_of_naive_bfd(sizes: list[int], budget: int) -> list[int]:
    """Room left in each pack, ascending."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        at = bisect_left(rooms, size)
        room = rooms.pop(at) if at < len(rooms) else budget
        insort(rooms, room - size)
    return rooms


@given(st.lists(st.integers(1, BUDGET), max_size=120))
def test_rooms_equal_those_of_the_naive_algorithm(sizes: list[int]) -> None:
    histogram = np.bincount(sizes, minlength=BUDGET + 1).astype(np.int64)
    rooms = []
    for group in pack_histogram(histogram, BUDGET):
        content = sum(length * times for length, times in group.lengths())
        rooms += [BUDGET - content] * group.packs
    assert sorted(rooms) == rooms_of_naive_bfd(sizes, BUDGET)


@given(st.lists(st.integers(1, BUDGET), max_size=120))
def test_every_span_once_and_packs_equal_the_histogram_plan(sizes: list[int]) -> None:
    load = Load(name="tokens", per_span=np.array(sizes, np.int64), limit=BUDGET)
    packing = histogram_bfd(permutation(len(sizes), 1), load, seed=0, epoch=0)
    assert sorted(packing.items.tolist()) == list(range(len(sizes)))
    rooms = BUDGET - packing.sum(load.per_span)
    assert sorted(rooms.tolist()) == rooms_of_naive_bfd(sizes, BUDGET)


def test_epochs_put_other_spans_together() -> None:
    lengths = lognormal_lengths(2000)
    load = Load(name="tokens", per_span=lengths, limit=8192)
    one, two = (
        {
            frozenset(packing.items[a:b].tolist())
            for a, b in zip(packing.offsets[:-1], packing.offsets[1:], strict=True)
        }
        for packing in (
            histogram_bfd(permutation(len(lengths), epoch), load, 0, epoch) for epoch in (0, 1)
        )
    )
    # Where a length is rare, the same few spans meet again.
    assert len(one & two) < len(one) // 2
