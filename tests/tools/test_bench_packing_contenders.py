"""Contenders of the packing bench pack right, and as what they stand for is published."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.histogram_bfd import pack_histogram
from tools.bench.packing_contenders import (
    PEERS,
    Packs,
    RoomTree,
    greedy_knapsack,
    in_batches,
    next_fit,
    packing_of,
    peer_packing,
    tree_bfd,
)
from tools.bench.packing_data import split_lengths
from tools.bench.packing_tree import segment_tree_bfd
from tools.bench.packing_trl import trl_packing, trl_version

_BUDGETS = st.sampled_from([1, 2, 3, 7, 8, 9, 100, 128])


def _sums(packs: Packs, lengths: list[int]) -> list[int]:
    return sorted(sum(lengths[item] for item in pack) for pack in packs)


@given(data=st.data(), budget=_BUDGETS, batch=st.integers(1, 40))
@pytest.mark.parametrize("contender", PEERS)
def test_every_item_once_and_no_pack_over_budget(
    contender: str, data: Any, budget: int, batch: int
) -> None:
    lengths = np.asarray(data.draw(st.lists(st.integers(1, budget), max_size=80)), np.int64)
    packing = peer_packing(contender, lengths, budget, batch)
    assert sorted(packing.items.tolist()) == list(range(len(lengths)))
    assert (packing.sizes > 0).all()
    assert (packing.sum(lengths) <= budget).all()


@given(lengths=st.lists(st.integers(1, 100), min_size=1, max_size=80))
def test_all_best_fits_leave_the_same_rooms(lengths: list[int]) -> None:
    packs = tree_bfd(lengths, 100)
    tree = segment_tree_bfd(np.asarray(lengths, np.int64), 100)
    assert sorted(tree.items.tolist()) == list(range(len(lengths)))
    sums = _sums(packs, lengths)
    assert sorted(tree.sum(np.asarray(lengths)).tolist()) == sums
    groups = pack_histogram(np.bincount(lengths, minlength=101).astype(np.int64), 100)
    ours = [
        sum(length * times for length, times in group.lengths())
        for group in groups
        for _ in range(group.packs)
    ]
    assert sorted(ours) == sums


@given(rooms=st.sets(st.integers(1, 100)), gone=st.sets(st.integers(1, 100)))
def test_the_tree_finds_the_least_room_that_is_enough(rooms: set[int], gone: set[int]) -> None:
    tree = RoomTree(100)
    for room in rooms:
        tree.put(room)
    for room in gone & rooms:
        tree.remove(room)
    left = rooms - gone
    for length in range(1, 101):
        assert tree.tightest(length) == min((r for r in left if r >= length), default=0)


def test_trl_s_documented_example_comes_out_the_same() -> None:
    """Of `trl.pack_dataset`: rows of 5, 2, 3 and 1 tokens into packs of 4."""
    rows = np.asarray([5, 2, 3, 1])
    truncated = np.minimum(rows, 4).tolist()
    assert tree_bfd(truncated, 4) == [[0], [2, 3], [1]]
    pieces = split_lengths(rows, 4).tolist()
    assert pieces == [4, 1, 2, 3, 1]
    # Tokens [1, 2, 3, 4], [8, 9, 10, 5] and [6, 7, 11] there: the cut-off 5 comes before the 11.
    assert tree_bfd(pieces, 4) == [[0], [3, 1], [2, 4]]


@pytest.mark.skipif(trl_version() is None, reason="trl is not installed: pip install trl datasets")
@pytest.mark.parametrize(("n", "budget", "batch"), [(500, 64, 100), (3000, 512, 1000), (40, 9, 7)])
def test_trl_itself_makes_the_same_packs(n: int, budget: int, batch: int) -> None:
    lengths = np.random.default_rng(n).integers(1, budget + 1, n)
    theirs = trl_packing(lengths, budget, batch)
    ours = packing_of(in_batches(tree_bfd, lengths.tolist(), budget, batch))
    assert theirs.items.tolist() == ours.items.tolist()
    assert theirs.offsets.tolist() == ours.offsets.tolist()


def test_trl_takes_the_first_of_packs_with_equal_room() -> None:
    assert tree_bfd([6, 6, 2, 2, 4], 10) == [[0, 4], [1, 2, 3]]
    assert tree_bfd([7, 7, 3], 10) == [[0, 2], [1]]


@pytest.mark.parametrize("packer", [tree_bfd, greedy_knapsack])
def test_batches_do_not_share_packs(packer: Callable[[Any, int], Packs]) -> None:
    lengths = [3, 3, 1, 1]
    assert _sums(packer(lengths, 4), lengths) == [4, 4]
    batched = in_batches(packer, lengths, 4, 2)
    assert _sums(batched, lengths) == [2, 3, 3]
    assert batched[-1] in ([2, 3], [3, 2])
    assert in_batches(packer, lengths, 4, 1000) == packer(lengths, 4)


def test_the_knapsack_takes_the_longest_that_fits_again_and_again() -> None:
    # 5, then the longest up to 5: 4, then up to 1: 1; best-fit decreasing would do likewise here,
    # but not below: it puts the second 4 beside the first, the knapsack takes 3 + 3 only after.
    assert greedy_knapsack([4, 5, 1, 3], 10) == [[1, 0, 2], [3]]
    assert greedy_knapsack([3, 4, 4, 3, 6], 10) == [[4, 2], [1, 3, 0]]


def test_next_fit_never_looks_back() -> None:
    assert next_fit([3, 2, 3, 1, 5], 5) == [[0, 1], [2, 3], [4]]
    assert next_fit([], 5) == []
