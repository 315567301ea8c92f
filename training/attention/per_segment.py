"""The CPU path and the reference of all others: one SDPA call for each group of equal segments."""

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor

from training.attention.backend import Attend, Backend, attend_to_nothing, untraced
from training.attention.segments import Segments


# Compiled code has a graph break here: the sizes of the groups are new in every batch, and code
# compiled for them would be compiled again for every batch.
@untraced
def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """See `training.attention.varlen.varlen_attention`."""
    groups = segments.groups
    if not any(size_k for _, _, size_k in groups.sizes):
        return attend_to_nothing(q, k, v)
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
    out = torch.cat(parts) if len(parts) > 1 else parts[0]
    return out if groups.restore_q is None else out.index_select(0, groups.restore_q.to(q.device))


def _heads_first(rows: Tensor, count: int) -> Tensor:
    """[count * L, H, D] -> [count, H, L, D]."""
    return rows.reshape(count, rows.shape[0] // count, *rows.shape[1:]).transpose(1, 2)


def _unfit(_device: torch.device, _dtype: torch.dtype) -> None:
    return None


def _load() -> Attend:
    return attend


SDPA: Final = Backend(
    name="sdpa", unfit=_unfit, load=_load, prepare=lambda segments: segments.masks
)
