"""FlashAttention 2, 3 and 4 (github.com/Dao-AILab/flash-attention), by their varlen entry points.

Shared heads of keys are native to all three, and causal masks are aligned at the bottom right.
Arguments go by keyword: the fourth positional one is `cu_seqlens_q` in generations 2 and 3, and
`qv` in generation 4.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

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

Varlen = Callable[..., Tensor | tuple[Tensor, ...]]


def call_flash(varlen: Varlen, q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """Call `flash_attn_varlen_func` of any generation."""
    out = varlen(
        q,
        k,
        v,
        cu_seqlens_q=segments.cu_seqlens_q,
        cu_seqlens_k=segments.cu_seqlens_k,
        max_seqlen_q=segments.max_seqlen_q,
        max_seqlen_k=segments.max_seqlen_k,
        causal=segments.causal,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    # Generation 4 returns (out, logsumexp), and so did early releases of 3.
    return out if isinstance(out, Tensor) else out[0]


def _generation(
    name: str,
    module: str,
    *,
    least: tuple[int, int] = (8, 0),
    most: tuple[int, int] | None = None,
    traceable: bool = False,
) -> Backend:
    def load() -> Attend:
        varlen: Varlen = imported(module, "flash_attn_varlen_func")
        if not traceable:
            varlen = untraced(varlen)
        return partial(attend_by_kernel, partial(call_flash, varlen), name=name)

    return Backend(
        name=name,
        unfit=partial(half_on_cuda, least=least, most=most),
        load=load,
        prepare=lambda segments: segments.sees_keys,
    )


# Generation 2 registers its kernels with torch, so that compiled code holds them without a break.
FLASH_2: Final = _generation("flash2", "flash_attn", traceable=True)
FLASH_3: Final = _generation("flash3", "flash_attn_interface", most=(9, 0))
FLASH_4: Final = _generation("flash4", "flash_attn.cute", least=(9, 0))
