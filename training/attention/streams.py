"""The attention calls of a batch: prefix to prefix, actions to both, actions to prefix.

The block mask of a vision-language-action policy needs no dense mask: it is these calls. Batches
whose segments hold pads (`training.padded.PaddedPack`) get the same calls with the pads hidden, so
that a model is written once for both.

Letters as in `loader.batch`.
"""

import torch
from torch import Tensor

from loader.batch import Modality, PackedBatch
from training.attention.segments import Segments
from training.attention.varlen import prepared
from training.padded import PaddedPack


def prefix_segments(batch: PackedBatch[Tensor]) -> Segments:
    """[T] prefix tokens to the prefix tokens of their span, in both directions."""
    return prepared(
        Segments(
            cu_seqlens_q=batch.cu_seqlens,
            cu_seqlens_k=batch.cu_seqlens,
            max_seqlen_q=batch.max_seqlen,
            max_seqlen_k=batch.max_seqlen,
            key_mask=real_tokens(batch),
            total_q=len(batch.input_ids),
            total_k=len(batch.input_ids),
        )
    )


def action_segments(batch: PackedBatch[Tensor], *, causal: bool) -> Segments:
    """[Q] action queries to the keys that `batch.kv_index` gathers: their prefix, then the actions.

    Args:
        batch: the batch.
        causal: a query sees the actions up to its own. Chunks are cut where the episode ends, so
            their length tells how far the end is: a query that saw all the others would learn to
            finish only in short chunks, and a rollout, which always asks for a full one, would
            never finish. False where a chunk is always whole (plans that drop windows past
            the end).
    """
    key_mask = real_tokens(batch)
    if key_mask is not None:
        key_mask = torch.cat((key_mask, batch.action_dim_mask.any(dim=1)))[batch.kv_index]
    return prepared(
        Segments(
            cu_seqlens_q=batch.cu_seqlens_action,
            cu_seqlens_k=batch.cu_seqlens_kv,
            max_seqlen_q=batch.max_seqlen_action,
            max_seqlen_k=batch.max_seqlen_kv,
            causal=causal,
            key_mask=key_mask,
            total_q=len(batch.actions),
            total_k=len(batch.kv_index),
        )
    )


def cross_segments(batch: PackedBatch[Tensor]) -> Segments:
    """[Q] action queries to the prefix tokens of their span."""
    return prepared(
        Segments(
            cu_seqlens_q=batch.cu_seqlens_action,
            cu_seqlens_k=batch.cu_seqlens,
            max_seqlen_q=batch.max_seqlen_action,
            max_seqlen_k=batch.max_seqlen,
            key_mask=real_tokens(batch),
            total_q=len(batch.actions),
            total_k=len(batch.input_ids),
        )
    )


def prefix_lengths(batch: PackedBatch[Tensor]) -> Tensor:
    """[N] int64 real prefix tokens of each segment: where its action queries begin to count."""
    real = real_tokens(batch)
    if real is None:
        return batch.cu_seqlens.diff().long()
    return real.long().reshape(len(batch.span_ids), -1).sum(dim=1)


def real_tokens(batch: PackedBatch[Tensor]) -> Tensor | None:
    """[T] bool, False at pads inside segments; None where segments hold none, as packed ones do."""
    return batch.token_modality != Modality.PAD if isinstance(batch, PaddedPack) else None


def rows_of(cu_seqlens: Tensor, total: int) -> Tensor:
    """[N+1] int32 -> [total] int64, the segment of each element."""
    return torch.repeat_interleave(cu_seqlens.diff().long(), output_size=total)
