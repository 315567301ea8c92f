"""Index arithmetic against plain loops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.assembly.segments import (
    joint_index,
    padded,
    padded_sums,
    ranges,
    segment_bounds,
    starts_of,
)
from loader.errors import BatchError
from packing.settings import MAX_BUDGET

_LENGTHS = st.lists(st.integers(0, 9), max_size=6)


@given(lengths=st.lists(st.integers(1, 9), max_size=6), spare=st.integers(0, 40))
def test_segments_cover_every_token_once_and_pads_stay_short(
    lengths: list[int], spare: int
) -> None:
    tokens = sum(lengths) + spare
    longest = max([*lengths, 3])
    segments = len(lengths) + -(-tokens // longest) if tokens else len(lengths) + 1
    bounds = segment_bounds(
        np.asarray(lengths, np.int32), tokens=tokens, segments=segments, longest=longest
    )
    sizes = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == tokens
    assert sizes[: len(lengths)].tolist() == lengths
    assert sizes.min(initial=0) >= 0
    assert sizes.max(initial=0) <= longest
    assert sizes.sum() == tokens


def test_spans_beyond_the_tokens_are_refused() -> None:
    with pytest.raises(BatchError, match="budget is 8"):
        segment_bounds(np.asarray([5, 4], np.int32), tokens=8, segments=4, longest=5)


@st.composite
def extreme_packs(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    """A budget up to the largest, and prefix and action lengths of spans that it holds."""
    budget = draw(st.sampled_from([128, 8192, MAX_BUDGET - 128, MAX_BUDGET]))
    prefix: list[int] = []
    action: list[int] = []
    left = budget
    while left and len(prefix) < 6 and draw(st.booleans()):
        length = draw(st.sampled_from([n for n in (1, left // 2, left - 1, left) if n]))
        query = draw(st.sampled_from([0, 1, length - 1, length // 2]))
        prefix.append(length - query)
        action.append(query)
        left -= length
    ones = min(left, draw(st.sampled_from([0, 1, 5000])))
    return budget, [*prefix, *[1] * ones], [*action, *[0] * ones]


@given(extreme_packs())
def test_cu_seqlens_of_the_largest_packs_are_int32(
    pack: tuple[int, list[int], list[int]],
) -> None:
    budget, prefix, action = pack
    longest = max([*prefix, 1, budget // 4096])  # of any pack; small ones make the test slow
    segments = len(prefix) + -(-budget // longest)  # as `BatchShape` has it
    cu_seqlens = segment_bounds(
        np.asarray(prefix, np.int32), tokens=budget, segments=segments, longest=longest
    )
    cu_action = padded_sums(np.asarray(action, np.int32), segments)
    cu_kv = cu_seqlens + cu_action
    for bounds, last in (
        (cu_seqlens, budget),
        (cu_action, sum(action)),
        (cu_kv, budget + sum(action)),
    ):
        assert bounds.dtype == np.int32
        assert (bounds[0], bounds[-1]) == (0, last)
        assert np.diff(bounds).min() >= 0
    assert np.diff(cu_seqlens)[: len(prefix)].tolist() == prefix
    assert np.diff(cu_kv).max() <= max(budget, longest)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_beyond_int32_are_refused_not_wrapped(dtype: type[np.integer[Any]]) -> None:
    counts = np.full(3, (1 << 30), dtype)
    assert padded_sums(counts[:1], 1).tolist() == [0, 1 << 30]
    with pytest.raises(BatchError, match="a pack of 3221225472 elements: cu_seqlens are int32"):
        padded_sums(counts, 3)
    with pytest.raises(BatchError, match="a pack of 3221225472 prefix tokens"):
        segment_bounds(counts.astype(np.int32), tokens=MAX_BUDGET, segments=4, longest=1 << 30)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), max_size=5), st.integers(0, 12))
def test_the_joint_stream_is_each_prefix_then_its_actions_then_pads(
    spans: list[tuple[int, int]], pads: int
) -> None:
    prefix = np.asarray([p for p, _ in spans], np.int32)
    action = np.asarray([a for _, a in spans], np.int32)
    tokens = int(prefix.sum()) + pads
    segments = len(spans) + pads + 1
    cu_prefix = segment_bounds(prefix, tokens=tokens, segments=segments, longest=6)
    cu_action = padded_sums(action, segments)
    expected: list[int] = []
    at_prefix, at_action = 0, tokens
    for p, a in spans:
        expected += [*range(at_prefix, at_prefix + p), *range(at_action, at_action + a)]
        at_prefix, at_action = at_prefix + p, at_action + a
    expected += range(at_prefix, tokens)
    assert joint_index(cu_prefix, cu_action, len(spans)).tolist() == expected


@given(_LENGTHS)
def test_starts_and_padded_sums(lengths: list[int]) -> None:
    counts = np.asarray(lengths, np.int32)
    assert starts_of(counts).tolist() == [sum(lengths[:n]) for n in range(len(lengths))]
    sums = padded_sums(counts, len(lengths) + 2)
    total = sum(lengths)
    assert sums.tolist() == [*(sum(lengths[:n]) for n in range(len(lengths) + 1)), total, total]
    assert sums.dtype == np.int32


def test_padding_and_ranges() -> None:
    assert padded(np.asarray([4, 5]), 4, np.int64).tolist() == [4, 5, -1, -1]
    assert ranges(np.asarray([7, 2], np.int64), 3).tolist() == [7, 8, 9, 2, 3, 4]
    assert ranges(np.asarray([7], np.int64), 0).tolist() == []
