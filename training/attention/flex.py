"""FlexAttention with a block mask: all masks there are, on any dtype, inside compiled code.

The block mask depends on the batch, the code does not: a compiled layer is compiled once.
"""

from collections.abc import Callable
from functools import cache, partial
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from training.attention.backend import Attend, Backend, attend_to_nothing
from training.attention.segments import Segments

Flex = Callable[[Tensor, Tensor, Tensor, BlockMask], Tensor]


def call_flex(
    flex_for: Callable[..., Flex], q: Tensor, k: Tensor, v: Tensor, segments: Segments
) -> Tensor:
    """Call FlexAttention for such heads and masks, which takes [1, H, T, D]."""
    if not len(q) or not len(k):
        return attend_to_nothing(q, k, v)
    flex = flex_for(
        heads=q.shape[1],
        kv_heads=k.shape[1],
        causal=segments.causal,
        hides=segments.key_mask is not None,
    )
    out = flex(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        segments.block_mask,
    )
    return out[0].transpose(0, 1)


def attend_by_flex(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask) -> Tensor:
    """FlexAttention on [1, H, T, D]; uncompiled it would hold all scores."""
    out: Tensor = flex_attention(
        q, k, v, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out


@cache
def compiled_flex(**kind: int) -> Flex:
    """`attend_by_flex`, compiled for one kind of call.

    With code of its own, since torch compiles a piece of code for a few kinds of arguments only and
    from then on runs it uncompiled. With `fullgraph` that is an error rather than slow.
    """
    name = "_".join(("flex", *(f"{key}{value:d}" for key, value in kind.items())))
    own = FunctionType(
        attend_by_flex.__code__.replace(co_name=name), attend_by_flex.__globals__, name
    )
    return torch.compile(own, fullgraph=True)


def inlined_or_compiled(**kind: int) -> Flex:
    """Inside code that is compiled anyway it is one with it."""
    return attend_by_flex if torch.compiler.is_compiling() else compiled_flex(**kind)


def _unfit(device: torch.device, _dtype: torch.dtype) -> str | None:
    if device.type == "cpu":
        return "FlexAttention has no backward pass on a CPU"
    return None


def _load() -> Attend:
    return partial(call_flex, inlined_or_compiled)


def _prepare(segments: Segments) -> Any:  # noqa: ANN401  # nobody reads it
    return segments.block_mask if all(segments.totals) else None


FLEX: Final = Backend(name="flex", unfit=_unfit, load=_load, prepare=_prepare)
