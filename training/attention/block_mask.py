"""Segments as FlexAttention's block mask, read off their starts.

`torch.nn.attention.flex_attention.create_block_mask` evaluates a mask at each of T x S places to
find out which blocks are empty, full or mixed. Segments lie in order, so the first and the last
segment of a block of queries and of a block of keys tell as much.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

_BLOCK: Final = 128


def make_block_mask(
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    total_q: int,
    total_k: int,
    causal: bool,
    key_mask: Tensor | None,
) -> BlockMask:
    """The block mask [1, 1, T, S] of segments; see `training.attention.segments.Segments`.

    Waits for no device.
    """
    segment_q, back_q = places(cu_seqlens_q, total_q)
    segment_k, back_k = places(cu_seqlens_k, total_k)

    def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = segment_q[query] == segment_k[key]
        if causal:
            seen = seen & (back_k[key] >= back_q[query])
        if key_mask is not None:
            seen = seen & key_mask[key]
        return seen

    first_q, last_q, whole_q = _blocks(segment_q)
    first_k, last_k, whole_k = _blocks(segment_k)
    mixed = (first_q[:, None] <= last_k) & (first_k <= last_q[:, None])
    full = torch.zeros_like(mixed)
    if not causal and key_mask is None:
        full = (whole_q[:, None] & whole_k) & (first_q[:, None] == first_k)
    count, index = _sparse(mixed & ~full)
    full_count, full_index = _sparse(full)
    return BlockMask.from_kv_blocks(
        count,
        index,
        full_count,
        full_index,
        BLOCK_SIZE=_BLOCK,
        mask_mod=sees,
        seq_lengths=(total_q, total_k),
    )


def places(cu_seqlens: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Segment [total] of each element, and its place [total] from the end of it: the last has 1."""
    segment = torch.repeat_interleave(cu_seqlens.diff().long(), output_size=total)
    return segment, cu_seqlens[1:][segment] - torch.arange(total, device=cu_seqlens.device)


def _blocks(segment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First and last segment of each block, and whether it is of one segment and full size."""
    total = len(segment)
    starts = torch.arange(0, total, _BLOCK, device=segment.device)
    first, last = segment[starts], segment[(starts + _BLOCK).clamp(max=total) - 1]
    return first, last, (first == last) & (starts + _BLOCK <= total)


def _sparse(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """[rows, columns] bool -> numbers [1, 1, rows] and, first, indices of the True columns."""
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]
