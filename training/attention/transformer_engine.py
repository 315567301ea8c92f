"""Transformer Engine's `DotProductAttention` in its `thd` layout.

From github.com/NVIDIA/TransformerEngine. It chooses among cuDNN's fused attention and the
FlashAttention generations by itself. Under FP8 autocast it stays in bfloat16 too: attention in FP8
is a setting of the recipe (`fp8_dpa`).
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import torch
from torch import Tensor

from training.attention.backend import (
    Attend,
    Backend,
    attend_by_kernel,
    half_on_cuda,
    imported,
    untraced,
)
from training.attention.segments import Segments

_NAME: Final = "te_thd"


def call_te(
    module_for: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, segments: Segments
) -> Tensor:
    """Call the module for these heads; it returns [T, H * D]."""
    module = module_for(
        heads=q.shape[1],
        kv_heads=k.shape[1],
        head_dim=q.shape[2],
        attention_type="self" if segments.cu_seqlens_q is segments.cu_seqlens_k else "cross",
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    out: Tensor = module(
        q,
        k,
        v,
        qkv_format="thd",
        cu_seqlens_q=segments.cu_seqlens_q,
        cu_seqlens_kv=segments.cu_seqlens_k,
        max_seqlen_q=segments.max_seqlen_q,
        max_seqlen_kv=segments.max_seqlen_k,
        attn_mask_type="padding_causal_bottom_right" if segments.causal else "padding",
    )
    return out.view(q.shape)


def modules_of(dot_product_attention: Callable[..., Any]) -> Callable[..., Any]:
    """One module for each kind of call. They have no weights and no part in any model."""

    @cache
    def module_for(
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        attention_type: str,
        deterministic: bool,  # noqa: ARG001  # of the key: a module asks torch when it is made
    ) -> Any:  # noqa: ANN401  # of a library without types
        return dot_product_attention(
            num_attention_heads=heads,
            kv_channels=head_dim,
            num_gqa_groups=kv_heads,
            attention_dropout=0.0,
            qkv_format="thd",
            attn_mask_type="padding",
            attention_type=attention_type,
        )

    return module_for


def _load() -> Attend:
    modules = modules_of(imported("transformer_engine.pytorch", "DotProductAttention"))
    # Of its own accord it leaves compiled code in some releases and not in others.
    kernel = untraced(partial(call_te, modules))
    return partial(attend_by_kernel, kernel, name=_NAME)


TRANSFORMER_ENGINE: Final = Backend(
    name=_NAME,
    unfit=half_on_cuda,
    load=_load,
    prepare=lambda segments: segments.sees_keys,
)
