"""Index arithmetic of packed streams: starts, segments, gathers."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loader.errors import BatchError

_INT32_MAX: Final = (1 << 31) - 1


def starts_of(counts: NDArray[Any]) -> NDArray[np.int64]:
    """int64 [n]: where each of n runs begins when they are laid end to end."""
    starts: NDArray[np.int64] = np.cumsum(counts, dtype=np.int64) - counts
    return starts


def padded_sums(counts: NDArray[Any], segments: int) -> NDArray[np.int32]:
    """int32 [segments+1]: running sums from 0, the total repeated.

    Raises:
        BatchError: the total is no int32.
    """
    total = int(counts.sum(dtype=np.int64))
    if total > _INT32_MAX:
        raise BatchError(f"a pack of {total} elements: cu_seqlens are int32, up to {_INT32_MAX}")
    sums = np.full(segments + 1, total, np.int32)
    sums[0] = 0
    np.cumsum(counts, out=sums[1 : len(counts) + 1])
    return sums


def padded(values: NDArray[Any], segments: int, dtype: type[np.generic]) -> NDArray[Any]:
    """[segments]: the values, then -1."""
    filled = np.full(segments, -1, dtype)
    filled[: len(values)] = values
    return filled


def ranges(first: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """int64 [n * length]: `length` numbers from each of `first` [n]."""
    numbers: NDArray[np.int64] = (first[:, None] + np.arange(length)).reshape(-1)
    return numbers


def segment_bounds(
    lengths: NDArray[np.int32], *, tokens: int, segments: int, longest: int
) -> NDArray[np.int32]:
    """`cu_seqlens` int32 [segments+1]: spans, then pads of at most `longest`, then T repeated.

    Raises:
        BatchError: the spans are longer than `tokens`.
    """
    used = int(lengths.sum(dtype=np.int64))
    if used > tokens:
        raise BatchError(f"a pack of {used} prefix tokens, the plan's budget is {tokens}")
    bounds = np.full(segments + 1, tokens, np.int32)
    bounds[0] = 0
    np.cumsum(lengths, out=bounds[1 : len(lengths) + 1])
    pads = np.arange(used + longest, tokens, longest, dtype=np.int32)
    bounds[len(lengths) + 1 : len(lengths) + 1 + len(pads)] = pads
    return bounds


def joint_index(
    cu_prefix: NDArray[np.int32], cu_action: NDArray[np.int32], num_spans: int
) -> NDArray[np.int64]:
    """int64 [T+Q]: where each key of the joint stream comes from in [prefix tokens; actions]."""
    tokens, queries = int(cu_prefix[-1]), int(cu_action[-1])
    index = np.empty(tokens + queries, np.int64)
    # A prefix token moves right by the actions of the spans before its own.
    shift = np.repeat(cu_action[:-1], np.diff(cu_prefix))
    index[np.arange(tokens) + shift] = np.arange(tokens)
    ends = np.repeat(cu_prefix[1 : num_spans + 1], np.diff(cu_action)[:num_spans])
    index[np.arange(queries) + ends] = tokens + np.arange(queries)
    return index
