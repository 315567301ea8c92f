"""The padded equivalent of packed batches: the reference that packing is measured against.

Spans are padded to the longest of their batch, prefix and action chunk apart, and attention is
one batched call with a key mask per layer: what a good trainer without packing does. Outputs and
gradients are those of the packed batch to rounding.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from loader.batch import IGNORED_LABEL, Modality, PackedBatch

A = TypeVar("A")


class PaddedPack(PackedBatch[A]):
    """A batch whose segments are of equal size and hold pads: `token_modality` is PAD there.

    Every field means what it means in `PackedBatch`; action queries past a span's own have no real
    dimension in `action_dim_mask`.
    """


def padded_batches(batch: PackedBatch[Tensor], batch_size: int) -> Iterator[PaddedPack[Tensor]]:
    """Split a packed batch into padded ones, spans in order.

    Args:
        batch: packed, on the host.
        batch_size: spans of a padded batch; the last one may hold fewer.
    """
    for first in range(0, batch.num_spans, batch_size):
        yield _pad(batch, first, min(first + batch_size, batch.num_spans))


def padded_tokens(batch: PackedBatch[Tensor]) -> int:
    """Tokens that a padded batch computes, prefix and actions, pads included."""
    return len(batch.input_ids) + len(batch.actions)


def _pad(batch: PackedBatch[Tensor], first: int, stop: int) -> PaddedPack[Tensor]:
    spans = stop - first
    token_from, token_to, tokens = _places(batch.cu_seqlens, first, stop)
    query_from, query_to, queries = _places(batch.cu_seqlens_action, first, stop)
    moved = torch.full((len(batch.input_ids),), -1)
    moved[token_from] = token_to
    rows = slice(int(batch.cu_seqlens_state[first]), int(batch.cu_seqlens_state[stop]))
    per_state = len(batch.state_token_index) // max(len(batch.state), 1)
    states = slice(rows.start * per_state, rows.stop * per_state)
    images = (batch.image_span_ids >= first) & (batch.image_span_ids < stop)
    image_tokens = torch.repeat_interleave(images, batch.cu_image_tokens.diff().long())
    per_image = batch.cu_image_tokens.diff()[images]
    weights = _spread(batch.action_loss_weights, query_from, query_to, spans * queries, 0)
    mask = _spread(batch.action_dim_mask, query_from, query_to, spans * queries, 0)
    each = torch.arange(spans)
    kv_index = torch.cat(
        (
            each[:, None] * tokens + torch.arange(tokens),
            spans * tokens + each[:, None] * queries + torch.arange(queries),
        ),
        dim=1,
    )

    def token(values: Tensor, fill: int) -> Tensor:
        return _spread(values, token_from, token_to, spans * tokens, fill)

    fields = replace(
        batch,
        input_ids=token(batch.input_ids, 0),
        position_ids=token(batch.position_ids, 0),
        segment_ids=torch.repeat_interleave(each.to(torch.int32), tokens),
        token_modality=token(batch.token_modality, Modality.PAD),
        labels=token(batch.labels, IGNORED_LABEL),
        loss_weights=token(batch.loss_weights, 0),
        cu_seqlens=_every(tokens, spans),
        images=_kept_images(batch, images),
        image_span_ids=batch.image_span_ids[images] - first,
        image_camera_ids=batch.image_camera_ids[images],
        image_step_index=batch.image_step_index[images],
        image_token_index=moved[batch.image_token_index[image_tokens]],
        cu_image_tokens=torch.nn.functional.pad(per_image.cumsum(0), (1, 0)).to(torch.int32),
        state=batch.state[rows],
        state_dim_mask=batch.state_dim_mask[rows],
        state_step_index=batch.state_step_index[rows],
        state_token_index=moved[batch.state_token_index[states]],
        cu_seqlens_state=batch.cu_seqlens_state[first : stop + 1] - rows.start,
        actions=_spread(batch.actions, query_from, query_to, spans * queries, 0),
        action_dim_mask=mask,
        action_position_ids=torch.arange(queries).repeat(spans),
        action_loss_weights=weights,
        cu_seqlens_action=_every(queries, spans),
        kv_index=kv_index.flatten(),
        cu_seqlens_kv=_every(tokens + queries, spans),
        **{
            name: getattr(batch, name)[first:stop]
            for name in (
                "embodiment_ids", "dataset_ids", "stats_ids", "span_ids", "occurrence_ids",
                "episode_ids", "step_index", "sample_weights",
            )
        },
        max_seqlen=tokens,
        max_seqlen_action=queries,
        max_seqlen_kv=tokens + queries,
        num_spans=spans,
        num_items_in_batch=0,
        num_action_items=int(mask[weights > 0].sum()),
    )  # fmt: skip
    return PaddedPack(**vars(fields))


def _places(cu_seqlens: Tensor, first: int, stop: int) -> tuple[Tensor, Tensor, int]:
    """Where each element of the segments [first, stop) comes from and goes to; the padded size."""
    starts = cu_seqlens[first:stop].long()
    lengths = cu_seqlens[first : stop + 1].diff().long()
    longest = int(lengths.max())
    rows = torch.repeat_interleave(lengths)
    nth = torch.arange(len(rows)) - (starts - starts[0])[rows]
    return starts[rows] + nth, rows * longest + nth, longest


def _spread(values: Tensor, source: Tensor, target: Tensor, size: int, fill: int) -> Tensor:
    out = torch.full((size, *values.shape[1:]), fill, dtype=values.dtype)
    out[target] = values[source]
    return out


def _every(length: int, count: int) -> Tensor:
    return torch.arange(count + 1, dtype=torch.int32) * length


def _kept_images(batch: PackedBatch[Tensor], keep: Tensor) -> tuple[Tensor, ...]:
    buckets, first = [], 0
    for bucket in batch.images:
        buckets.append(bucket[keep[first : first + len(bucket)]])
        first += len(bucket)
    return tuple(buckets)
