"""A packed batch rebuilt as the padded layout of openpi and LeRobot: reference and fall-back."""

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np

from loader.batch import A, Modality, PackedBatch
from loader.errors import BatchError


@dataclass(frozen=True, kw_only=True)
class PaddedBatch(Generic[A]):
    """B spans, each padded to the same sizes.

    Attributes:
        images: uint8 [B, O, C, 3, h, w] (`rgb`) or [B, O, C, 3h/2, w] (`yuv`); the camera axis is
            the plan's cameras, the last observation is the current one.
        image_mask: bool [B, O, C], False where there is no picture.
        input_ids: int64 [B, L], the text, with that around images where the layout frames them; 0
            past its end.
        attention_mask: bool [B, L].
        state: float32 [B, O, D], zeros to the right of what an embodiment has.
        state_mask: bool [B, O], False where no state is known: before an episode's begin, at
            masked steps, and for an embodiment without one.
        actions: float32 [B, H, D].
        action_is_pad: bool [B, H], True past the episode's end and at invalid steps.
        action_dim_mask: bool [B, D].
    """

    images: A
    image_mask: A
    input_ids: A
    attention_mask: A
    state: A
    state_mask: A
    actions: A
    action_is_pad: A
    action_dim_mask: A


def padded(
    batch: PackedBatch[A],
    *,
    max_text: int,
    num_cameras: int,
    horizon: int,
    dim: int,
    num_observed: int = 1,
) -> PaddedBatch[A]:
    """Pad every span of a batch to the same sizes; nothing is cut.

    Args:
        batch: of numpy or torch arrays.
        max_text: L, text tokens of a span.
        num_cameras: C.
        horizon: H, action steps of a span.
        dim: D, elements of state and action.
        num_observed: O, observed steps of a span.

    Raises:
        BatchError: a span holds more than the layout has room for, or pictures differ in size.
    """
    this: Any = batch
    if len(batch.images) > 1:
        sizes = ", ".join(str(tuple(bucket.shape[-2:])) for bucket in this.images)
        raise BatchError(
            f"pictures of several sizes ({sizes}) have no padded layout: give the loader an"
            " image_size"
        )
    spans = batch.num_spans
    pixels = this.images[0].shape[1:] if this.images else (3, 0, 0)
    bucket = this.images[0] if this.images else zeros(this.token_modality, (0, *pixels))
    out = PaddedBatch(
        images=zeros(bucket, (spans, num_observed, num_cameras, *pixels)),
        image_mask=zeros(this.action_dim_mask, (spans, num_observed, num_cameras)),
        input_ids=zeros(this.input_ids, (spans, max_text)),
        attention_mask=zeros(this.action_dim_mask, (spans, max_text)),
        state=zeros(this.state, (spans, num_observed, dim)),
        state_mask=zeros(this.action_dim_mask, (spans, num_observed)),
        actions=zeros(this.actions, (spans, horizon, dim)),
        action_is_pad=zeros(this.action_dim_mask, (spans, horizon)) == 0,
        action_dim_mask=zeros(this.action_dim_mask, (spans, dim)),
    )
    _fits("action or state elements", max(this.actions.shape[1], this.state.shape[1]), dim)
    if len(this.image_camera_ids):
        _fits("cameras of the plan", int(this.image_camera_ids.max()) + 1, num_cameras)
    observations = [
        _span(this, out, span, max_text, horizon, num_observed) for span in range(spans)
    ]
    for row in range(len(this.image_span_ids)):
        span = int(this.image_span_ids[row])
        at = observations[span][int(this.image_step_index[row])]
        camera = int(this.image_camera_ids[row])
        out.images[span, at, camera] = bucket[row]
        out.image_mask[span, at, camera] = True
    return out


def _span(
    batch: Any,  # noqa: ANN401  # a PackedBatch of numpy or torch
    out: PaddedBatch[Any],
    span: int,
    max_text: int,
    horizon: int,
    num_observed: int,
) -> dict[int, int]:
    """Fill all but the pictures of one span; returns observed step -> place on the O axis."""
    tokens = slice(int(batch.cu_seqlens[span]), int(batch.cu_seqlens[span + 1]))
    text = batch.input_ids[tokens][batch.token_modality[tokens] == int(Modality.TEXT)]
    _fits("text tokens", len(text), max_text)
    out.input_ids[span, : len(text)] = text
    out.attention_mask[span, : len(text)] = True
    rows = slice(int(batch.cu_seqlens_state[span]), int(batch.cu_seqlens_state[span + 1]))
    states = batch.state[rows]
    _fits("observed steps", len(states), num_observed)
    first = num_observed - len(states)
    out.state[span, first:, : states.shape[1]] = states
    out.state_mask[span, first:] = batch.state_dim_mask[rows].any(-1)
    queries = slice(int(batch.cu_seqlens_action[span]), int(batch.cu_seqlens_action[span + 1]))
    actions = batch.actions[queries]
    _fits("action steps", len(actions), horizon)
    out.actions[span, : len(actions), : actions.shape[1]] = actions
    out.action_is_pad[span, : len(actions)] = batch.action_loss_weights[queries] == 0
    if len(actions):
        out.action_dim_mask[span, : actions.shape[1]] = batch.action_dim_mask[queries][0]
    steps = batch.state_step_index[rows].tolist()
    return {step: first + nth for nth, step in enumerate(steps)}


def _fits(what: str, held: int, room: int) -> None:
    if held > room:
        raise BatchError(f"{held} {what} do not fit into a padded layout of {room}")


def zeros(like: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401  # numpy or torch
    """Zeros of the library, dtype and device of `like`."""
    if isinstance(like, np.ndarray):
        return np.zeros(shape, like.dtype)
    return like.new_zeros(shape)
