"""torch's own `torch.nn.attention.varlen.varlen_attn`, which is FlashAttention 2 within."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor

from training.attention.backend import Attend, Backend, attend_by_kernel, half_on_cuda, imported
from training.attention.segments import Segments
from training.errors import ConfigError

_NAME: Final = "torch_varlen"
_EVERYTHING: Final = (-1, -1)
_CAUSAL: Final = (-1, 0)  # of the window: any key before, aligned at the bottom right, none after


def call_torch(
    varlen_attn: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, segments: Segments
) -> Tensor:
    """Call `varlen_attn`.

    Deterministic where torch is told to be: its backward pass asks the global setting.
    """
    return varlen_attn(
        q,
        k,
        v,
        cu_seq_q=segments.cu_seqlens_q,
        cu_seq_k=segments.cu_seqlens_k,
        max_q=segments.max_seqlen_q,
        max_k=segments.max_seqlen_k,
        window_size=_CAUSAL if segments.causal else _EVERYTHING,
        enable_gqa=q.shape[1] != k.shape[1],
    )


def _load() -> Attend:
    varlen_attn = imported("torch.nn.attention.varlen", "varlen_attn")
    missing = {"window_size", "enable_gqa"} - inspect.signature(varlen_attn).parameters.keys()
    if missing:
        raise ConfigError(
            f"varlen_attn of torch {torch.__version__} has no {' and no '.join(sorted(missing))}"
        )
    return partial(attend_by_kernel, partial(call_torch, varlen_attn), name=_NAME)


TORCH_VARLEN: Final = Backend(
    name=_NAME,
    unfit=half_on_cuda,
    load=_load,
    prepare=lambda segments: segments.sees_keys,
)
