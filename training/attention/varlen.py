"""Attention over segments of a packed batch: one function for every backend.

A packed batch is one long row of tokens; `cu_seqlens` says where each span's tokens begin. The
block mask of a vision-language-action policy needs no dense mask: it is two calls, prefix to
prefix, and action to prefix + earlier actions.

Shape suffixes: T tokens of queries, S tokens of keys, N segments, H heads, D head size.
"""

import importlib
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor

from training.attention.segments import Segments


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """Softmax attention inside each segment, nothing across segments.

    Args:
        q: [T, H, D] queries.
        k: [S, Hk, D] keys; Hk divides H, and query heads share those of keys in groups.
        v: [S, Hk, D] values.
        segments: which queries see which keys.

    Returns:
        [T, H, D]. A segment with queries but no keys gives zeros.
    """
    flash = _flash_varlen_func(q)
    if flash is None or segments.key_mask is not None:
        return _sdpa_per_segment(q, k, v, segments)
    # By keyword: the fourth positional argument is not the same in all generations.
    out = flash(
        q,
        k,
        v,
        cu_seqlens_q=segments.cu_seqlens_q,
        cu_seqlens_k=segments.cu_seqlens_k,
        max_seqlen_q=segments.max_seqlen_q,
        max_seqlen_k=segments.max_seqlen_k,
        causal=segments.causal,
    )
    # Generations 3 and 4 may return (out, logsumexp).
    return out if isinstance(out, Tensor) else out[0]


def attention_backend(device: torch.device, dtype: torch.dtype) -> str:
    """Name of the backend that `varlen_attention` uses for such tensors, for the run's record."""
    flash = _flash_varlen_func(torch.empty(0, device=device, dtype=dtype))
    return "sdpa_per_segment" if flash is None else f"{flash.__module__}.{flash.__name__}"


def _flash_varlen_func(q: Tensor) -> Callable[..., Tensor | tuple[Tensor, ...]] | None:
    """FlashAttention's varlen entry point where it can run: CUDA, half precision, installed."""
    if q.device.type != "cuda" or q.dtype not in {torch.float16, torch.bfloat16}:
        return None
    for module in ("flash_attn.cute", "flash_attn_interface", "flash_attn"):  # 4, 3, 2
        try:
            return cast(
                "Callable[..., Tensor | tuple[Tensor, ...]]",
                importlib.import_module(module).flash_attn_varlen_func,
            )
        except (ImportError, AttributeError):
            continue
    return None


def _sdpa_per_segment(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """The CPU path and the reference: one SDPA call for each group of equal segments."""
    groups = segments.groups
    if groups.order_q is not None:
        q = q.index_select(0, groups.order_q.to(q.device))
    if groups.order_k is not None:
        order_k = groups.order_k.to(k.device)
        k, v = k.index_select(0, order_k), v.index_select(0, order_k)
    parts = []
    first_q = first_k = 0
    for (count, size_q, size_k), mask in zip(groups.sizes, segments.masks, strict=True):
        stop_q, stop_k = first_q + count * size_q, first_k + count * size_k
        rows = q[first_q:stop_q]
        if size_k:
            out_nhtd = F.scaled_dot_product_attention(
                _heads_first(rows, count),
                _heads_first(k[first_k:stop_k], count),
                _heads_first(v[first_k:stop_k], count),
                attn_mask=mask,
                enable_gqa=q.shape[1] != k.shape[1],
            )
            parts.append(out_nhtd.transpose(1, 2).reshape(rows.shape))
        else:
            parts.append(torch.zeros_like(rows))
        first_q, first_k = stop_q, stop_k
    if not parts:
        # No query at all. Keys and values stay in the graph: under DDP every parameter must get
        # a gradient on every rank, be it zero.
        return q + 0.0 * (k.sum() + v.sum())
    out = torch.cat(parts) if len(parts) > 1 else parts[0]
    return out if groups.restore_q is None else out.index_select(0, groups.restore_q.to(q.device))


def _heads_first(rows: Tensor, count: int) -> Tensor:
    """[count * L, H, D] -> [count, H, L, D]."""
    return rows.reshape(count, rows.shape[0] // count, *rows.shape[1:]).transpose(1, 2)
