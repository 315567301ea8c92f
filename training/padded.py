"""The padded equivalent of packed batches: the reference that packing is measured against.

Spans of a batch are padded to one size, prefix and action chunk apart, and attention is one batched
call with a key mask per layer: what a good trainer without packing does. Outputs and gradients are
those of the packed batch to rounding, since pads are seen by nothing and real tokens keep their
positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from loader.batch import IGNORED_LABEL, Modality, PackedBatch
from training.errors import ConfigError

A = TypeVar("A")


@dataclass(frozen=True, kw_only=True)
class PadTo:
    """To what spans are padded; None: to the longest of their batch.

    Attributes:
        prefix_tokens: of a span, pads included.
        action_steps: of a span.
        text_tokens: tokens of the text; openpi's `max_token_len`.
        pictures: picture slots (cameras times observed steps), or `most` for the most that a span
            of the batch has. What is missing is black, and goes through the vision tower before its
            tokens are hidden, as in openpi and LeRobot. None: no slots, only real pictures are
            computed and tokens alone are padded.
    """

    prefix_tokens: int | None = None
    action_steps: int | None = None
    text_tokens: int | None = None
    pictures: int | Literal["most"] | None = None


class PaddedPack(PackedBatch[A]):
    """A batch whose segments are of equal size and hold pads: `token_modality` is PAD there.

    Every field means what it means in `PackedBatch`; action queries past a span's own have no real
    dimension in `action_dim_mask`, and black pictures in missing slots have pads for tokens.
    """


def padded_batches(
    batch: PackedBatch[Tensor],
    batch_size: int,
    pad_to: PadTo = PadTo(),
    *,
    rows: Sequence[int] | None = None,
) -> Iterator[PaddedPack[Tensor]]:
    """Split a packed batch into padded ones.

    Args:
        batch: packed.
        batch_size: spans of a padded batch; the last one may hold fewer.
        pad_to: sizes.
        rows: rows of the spans to take, in their order; None for all of them as they lie.

    Raises:
        ConfigError: a span holds more than it should be padded to, or no picture of the batch tells
            the size of a black one.
    """
    device = batch.cu_seqlens.device
    spans = torch.arange(batch.num_spans, device=device)
    if rows is not None:
        spans = torch.tensor(rows, dtype=torch.int64, device=device)
    for chosen in torch.split(spans, batch_size):
        yield _pad(batch, chosen, pad_to)


def padded_pack(batch: PackedBatch[Tensor], multiple: int = 1) -> PackedBatch[Tensor]:
    """All spans of a packed batch padded to its longest; a batch without spans as it is.

    Args:
        batch: packed, on any device.
        multiple: of tokens that a padded prefix is rounded up to, so that those of the batch are a
            multiple of it too.
    """
    if not batch.num_spans:
        return batch
    longest = -(-batch.max_seqlen // multiple) * multiple
    return next(padded_batches(batch, batch.num_spans, PadTo(prefix_tokens=longest)))


def padded_tokens(batch: PackedBatch[Tensor]) -> int:
    """Tokens that a padded batch computes, prefix and actions, pads included."""
    return len(batch.input_ids) + len(batch.actions)


class _Places(NamedTuple):
    """Where the elements of chosen segments come from and go to.

    Attributes:
        source: [L] int64 place in the batch.
        target: [L] int64 place in the padded batch.
        size: of every padded segment.
    """

    source: Tensor
    target: Tensor
    size: int


class _Slots(NamedTuple):
    """Pictures that are missing.

    Attributes:
        rows: [E] int64, chosen span of each.
        tokens: [E * tokens of a picture] int64, places of theirs in the padded batch.
    """

    rows: Tensor
    tokens: Tensor


def _pad(batch: PackedBatch[Tensor], chosen: Tensor, pad_to: PadTo) -> PaddedPack[Tensor]:
    spans, device = len(chosen), chosen.device
    each = torch.arange(spans, device=device)
    # The last is for pads of the packed batch.
    row_of = chosen.new_full((len(batch.span_ids) + 1,), -1)
    row_of[chosen] = each
    missing, prefix_size = _plan_prefix(batch, chosen, pad_to)
    prefix = _places(batch.cu_seqlens, chosen, prefix_size)
    lengths = batch.cu_seqlens_action.diff()[chosen]
    queries = _at_least("action steps", lengths, pad_to.action_steps, batch, chosen)
    action = _places(batch.cu_seqlens_action, chosen, queries)
    moved = chosen.new_full((len(batch.input_ids),), -1)
    moved[prefix.source] = prefix.target

    kept = (row_of[batch.image_span_ids.long()] >= 0).nonzero()[:, 0]
    slots = _slots(batch, chosen, missing, prefix.size)
    image_tokens = _elements(batch.cu_image_tokens, kept)
    per_image = torch.cat(
        (batch.cu_image_tokens.diff()[kept], _tokens_of_pictures(batch).expand(len(slots.rows)))
    )
    states = _elements(batch.cu_seqlens_state, chosen)
    per_state = len(batch.state_token_index) // max(len(batch.state), 1)
    state_tokens = (states[:, None] * per_state + torch.arange(per_state, device=device)).flatten()
    mask = _spread(batch.action_dim_mask, action, spans, 0)
    weights = _spread(batch.action_loss_weights, action, spans, 0)
    tokens = prefix.size
    query = torch.arange(queries, device=device)
    kv_index = torch.cat(
        (
            each[:, None] * tokens + torch.arange(tokens, device=device),
            spans * tokens + each[:, None] * queries + query,
        ),
        dim=1,
    )
    fields = replace(
        batch,
        input_ids=_spread(batch.input_ids, prefix, spans, 0),
        position_ids=_spread(batch.position_ids, prefix, spans, 0),
        segment_ids=torch.repeat_interleave(each.to(torch.int32), tokens),
        token_modality=_spread(batch.token_modality, prefix, spans, Modality.PAD),
        labels=_spread(batch.labels, prefix, spans, IGNORED_LABEL),
        loss_weights=_spread(batch.loss_weights, prefix, spans, 0),
        cu_seqlens=_every(tokens, each),
        images=_with_black(_kept_images(batch, kept), len(slots.rows)),
        image_span_ids=torch.cat((row_of[batch.image_span_ids.long()[kept]], slots.rows)).to(
            torch.int32
        ),
        # Whose slot it is changes nothing: its tokens are hidden.
        image_camera_ids=pad(batch.image_camera_ids[kept], (0, len(slots.rows))),
        image_step_index=pad(batch.image_step_index[kept], (0, len(slots.rows))),
        image_token_index=torch.cat((moved[batch.image_token_index[image_tokens]], slots.tokens)),
        cu_image_tokens=pad(per_image.cumsum(0), (1, 0)).to(torch.int32),
        state=batch.state[states],
        state_dim_mask=batch.state_dim_mask[states],
        state_step_index=batch.state_step_index[states],
        state_token_index=moved[batch.state_token_index[state_tokens]],
        cu_seqlens_state=pad(batch.cu_seqlens_state.diff()[chosen].cumsum(0), (1, 0)).to(
            torch.int32
        ),
        actions=_spread(batch.actions, action, spans, 0),
        action_dim_mask=mask,
        action_position_ids=query.repeat(spans),
        action_loss_weights=weights,
        cu_seqlens_action=_every(queries, each),
        kv_index=kv_index.flatten(),
        cu_seqlens_kv=_every(tokens + queries, each),
        **{
            name: getattr(batch, name)[chosen]
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


def _plan_prefix(batch: PackedBatch[Tensor], chosen: Tensor, pad_to: PadTo) -> tuple[Tensor, int]:
    """Missing pictures of each chosen span, and tokens of every padded prefix."""
    rows = batch.segment_ids.long()[batch.token_modality == Modality.TEXT]
    text = torch.bincount(rows, minlength=len(batch.span_ids))[chosen]
    shown = torch.bincount(batch.image_span_ids.long(), minlength=len(batch.span_ids))[chosen]
    most_text = _at_least("text tokens", text, pad_to.text_tokens, batch, chosen)
    missing = torch.zeros_like(shown)
    if pad_to.pictures is not None:
        slots = None if pad_to.pictures == "most" else pad_to.pictures
        missing = _at_least("pictures", shown, slots, batch, chosen) - shown
    needed = batch.cu_seqlens.diff()[chosen] + missing * _tokens_of_pictures(batch)
    if pad_to.text_tokens is not None:
        needed = needed + most_text - text
    return missing, _at_least("prefix tokens", needed, pad_to.prefix_tokens, batch, chosen)


def _at_least(
    what: str, held: Tensor, wanted: int | None, batch: PackedBatch[Tensor], chosen: Tensor
) -> int:
    """What is wanted, else the most that a span holds."""
    most = int(held.max())
    if wanted is not None and most > wanted:
        span = int(batch.span_ids[chosen[held.argmax()]])
        raise ConfigError(f"span {span} has {most} {what}: they cannot be padded to {wanted}")
    return most if wanted is None else wanted


def _places(cu_seqlens: Tensor, chosen: Tensor, size: int) -> _Places:
    """Elements keep their order at the begin of their padded segment."""
    rows, nth = _number(cu_seqlens.diff()[chosen])
    return _Places(_elements(cu_seqlens, chosen), rows * size + nth, size)


def _elements(cu_seqlens: Tensor, chosen: Tensor) -> Tensor:
    """[L] int64 places of the elements of segments, one segment after the other."""
    rows, nth = _number(cu_seqlens.diff()[chosen])
    return cu_seqlens.long()[chosen][rows] + nth


def _number(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Row, and number inside its row, of each element of rows of these lengths; int64."""
    lengths = lengths.long()
    rows = torch.repeat_interleave(lengths)
    return rows, torch.arange(len(rows), device=rows.device) - (lengths.cumsum(0) - lengths)[rows]


def _slots(batch: PackedBatch[Tensor], chosen: Tensor, missing: Tensor, size: int) -> _Slots:
    """Right behind the real tokens of their span."""
    if int(missing.sum()) and not batch.images:
        raise ConfigError("no picture in the batch tells how large a black one should be")
    rows, nth = _number(missing * _tokens_of_pictures(batch))
    real = batch.cu_seqlens.diff().long()[chosen]
    return _Slots(torch.repeat_interleave(missing), rows * size + real[rows] + nth)


def _tokens_of_pictures(batch: PackedBatch[Tensor]) -> Tensor:
    """[1] int32 tokens of a picture, the same for all."""
    pictures = len(batch.image_span_ids)
    return batch.cu_image_tokens.new_tensor([len(batch.image_token_index) // max(pictures, 1)])


def _spread(values: Tensor, places: _Places, spans: int, fill: int) -> Tensor:
    out = values.new_full((spans * places.size, *values.shape[1:]), fill)
    out[places.target] = values[places.source]
    return out


def _every(length: int, each: Tensor) -> Tensor:
    return (pad(each + 1, (1, 0)) * length).to(torch.int32)


def _kept_images(batch: PackedBatch[Tensor], kept: Tensor) -> tuple[Tensor, ...]:
    buckets, first = [], 0
    for bucket in batch.images:
        inside = (kept >= first) & (kept < first + len(bucket))
        buckets.append(bucket[kept[inside] - first])
        first += len(bucket)
    return tuple(buckets)


def _with_black(images: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """Black pictures of the last bucket's size behind it."""
    if not count:
        return images
    black = images[-1].new_zeros(count, *images[-1].shape[1:])
    return (*images[:-1], torch.cat((images[-1], black)))
