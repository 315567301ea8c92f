"""Index arithmetic against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.errors import BatchError
from loader.segments import joint_index, padded, padded_sums, ranges, segment_bounds, starts_of

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
