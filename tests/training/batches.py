"""Synthetic spans and packed batches, laid out by code of its own (plain loops, no loader)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.batch import Modality, PackedBatch
from packing.layout import TokenLayout
from training.models.film.config import FilmConfig
from training.policy_spec import Moments, PolicySpec

IMAGE_TOKENS = 4
STATE_DIMS = (5, 3)
ACTION_DIMS = (4, 2)
TINY = FilmConfig(
    width=32, expert_width=24, layers=2, heads=2, head_dim=8, conv_channels=(8, 16), flow_steps=3
)


def policy_spec(*, image_size: int | None = 16) -> PolicySpec:
    """Two embodiments with states and actions of different sizes, two cameras."""

    def moments(dims: Sequence[int]) -> tuple[Moments, ...]:
        return tuple(
            Moments(mean=tuple(0.1 * i for i in range(d)), std=tuple(1.0 + i for i in range(d)))
            for d in dims
        )

    return PolicySpec(
        layout=TokenLayout(image_tokens=IMAGE_TOKENS, state_tokens=1, action_tokens=1),
        tokenizer_fingerprint="",
        vocab_size=264,
        cameras=("front", "wrist"),
        embodiments=("arm", "cart"),
        spec_ids=("spec-a", "spec-b"),
        state=moments(STATE_DIMS),
        action=moments(ACTION_DIMS),
        horizon=6,
        span_kind="window",
        history=1,
        image_size=image_size,
    )


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span's content; `images` are (camera, uint8 [3, h, w])."""

    span_id: int
    kind: int
    text: tuple[int, ...]
    images: tuple[tuple[int, NDArray[np.uint8]], ...]
    state: NDArray[np.float32]
    actions: NDArray[np.float32]
    valid: NDArray[np.bool_]


def make_spans(count: int, *, seed: int = 0, size: int = 16) -> list[Span]:
    """Spans of both embodiments, of several lengths, some without pictures or with lost actions."""
    rng = np.random.default_rng(seed)
    spans = []
    for number in range(count):
        kind = int(rng.integers(2))
        chunk = int(rng.integers(1, 7))
        cameras = [c for c in range(2) if rng.random() < 0.7]
        spans.append(
            Span(
                span_id=1000 + number,
                kind=kind,
                text=tuple(int(t) for t in rng.integers(8, 264, rng.integers(1, 9))),
                images=tuple(
                    (c, rng.integers(0, 256, (3, size, size), dtype=np.uint8)) for c in cameras
                ),
                state=rng.standard_normal((1, STATE_DIMS[kind])).astype(np.float32),
                actions=rng.standard_normal((chunk, ACTION_DIMS[kind])).astype(np.float32),
                valid=rng.random(chunk) < 0.8,
            )
        )
    return spans


def pack(
    spans: Sequence[Span],
    *,
    pad: int = 0,
    segments: int = 40,
    epoch: int = 0,
    step: int = 0,
    extra: int = 0,
) -> PackedBatch[Tensor]:
    """Lay spans end to end, then `pad` pad tokens in segments of at most the longest span.

    A span's prefix ends with `extra` tokens of the layout's own.
    """
    ids: list[int] = []
    modality: list[int] = []
    segment: list[int] = []
    position: list[int] = []
    image_index: list[int] = []
    state_index: list[int] = []
    kv: list[int] = []
    lengths: list[int] = []
    queries = 0
    pictures, picture_spans, picture_cameras = [], [], []
    for row, span in enumerate(spans):
        first = len(ids)
        for camera, pixels in span.images:
            pictures.append(pixels)
            picture_spans.append(row)
            picture_cameras.append(camera)
            image_index += range(len(ids), len(ids) + IMAGE_TOKENS)
            ids += [3] * IMAGE_TOKENS
            modality += [Modality.IMAGE] * IMAGE_TOKENS
        ids += span.text
        modality += [Modality.TEXT] * len(span.text)
        state_index.append(len(ids))
        ids.append(4)
        modality.append(Modality.STATE)
        ids += [0] * extra
        modality += [Modality.EXTRA] * extra
        length = len(ids) - first
        lengths.append(length)
        segment += [row] * length
        position += range(length)
        queries += len(span.actions)
    tokens = len(ids) + pad
    longest = max(lengths, default=max(pad, 1))
    cu = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    query = 0
    for row, span in enumerate(spans):
        kv += range(cu[row], cu[row + 1])
        kv += range(tokens + query, tokens + query + len(span.actions))
        query += len(span.actions)
    kv += range(len(ids), tokens)
    while cu[-1] < tokens:
        length = min(longest, tokens - cu[-1])
        position += range(length)
        cu.append(cu[-1] + length)
    ids += [0] * pad
    modality += [Modality.PAD] * pad
    segment += [segments] * pad
    cu += [tokens] * (segments + 1 - len(cu))
    counts = [len(span.actions) for span in spans]
    cu_action = np.full(segments + 1, queries)
    cu_action[: len(spans) + 1] = np.concatenate([[0], np.cumsum(counts)])
    actions, mask = np.zeros((queries, 4), np.float32), np.zeros((queries, 4), bool)
    state, state_mask = np.zeros((len(spans), 5), np.float32), np.zeros((len(spans), 5), bool)
    for row, span in enumerate(spans):
        there = slice(cu_action[row], cu_action[row + 1])
        actions[there, : ACTION_DIMS[span.kind]] = span.actions * span.valid[:, None]
        mask[there, : ACTION_DIMS[span.kind]] = True
        state[row, : STATE_DIMS[span.kind]] = span.state
        state_mask[row, : STATE_DIMS[span.kind]] = True
    weights = np.concatenate([np.zeros(0), *(span.valid for span in spans)]).astype(np.float32)
    cu_state = np.minimum(np.arange(segments + 1), len(spans))
    images = np.stack(pictures) if pictures else np.zeros((0, 3, 16, 16), np.uint8)

    def rows(values: Sequence[int], dtype: torch.dtype) -> Tensor:
        padded = torch.full((segments,), -1, dtype=dtype)
        padded[: len(values)] = torch.tensor(values, dtype=dtype)
        return padded

    kinds = [span.kind for span in spans]
    return PackedBatch(
        input_ids=torch.tensor(ids, dtype=torch.int64),
        position_ids=torch.tensor(position, dtype=torch.int64),
        segment_ids=torch.tensor(segment, dtype=torch.int32),
        token_modality=torch.tensor(modality, dtype=torch.uint8),
        labels=torch.full((tokens,), -100),
        loss_weights=torch.zeros(tokens),
        cu_seqlens=torch.tensor(cu, dtype=torch.int32),
        images=(torch.from_numpy(images),),
        image_format="rgb",
        image_span_ids=torch.tensor(picture_spans, dtype=torch.int32),
        image_camera_ids=torch.tensor(picture_cameras, dtype=torch.int16),
        image_step_index=torch.zeros(len(pictures), dtype=torch.int32),
        image_token_index=torch.tensor(image_index, dtype=torch.int64),
        cu_image_tokens=torch.arange(len(pictures) + 1, dtype=torch.int32) * IMAGE_TOKENS,
        state=torch.from_numpy(state),
        state_dim_mask=torch.from_numpy(state_mask),
        state_step_index=torch.zeros(len(spans), dtype=torch.int32),
        state_token_index=torch.tensor(state_index, dtype=torch.int64),
        cu_seqlens_state=torch.from_numpy(cu_state.astype(np.int32)),
        actions=torch.from_numpy(actions),
        action_dim_mask=torch.from_numpy(mask),
        action_position_ids=torch.tensor([i for c in counts for i in range(c)], dtype=torch.int64),
        action_loss_weights=torch.from_numpy(weights),
        cu_seqlens_action=torch.from_numpy(cu_action.astype(np.int32)),
        kv_index=torch.tensor(kv, dtype=torch.int64),
        cu_seqlens_kv=torch.tensor(cu, dtype=torch.int32)
        + torch.from_numpy(cu_action.astype(np.int32)),
        embodiment_ids=rows(kinds, torch.int32),
        dataset_ids=rows([0] * len(spans), torch.int32),
        stats_ids=rows(kinds, torch.int32),
        span_ids=rows([span.span_id for span in spans], torch.int64),
        occurrence_ids=rows([0] * len(spans), torch.int32),
        episode_ids=rows([0] * len(spans), torch.int64),
        step_index=rows([0] * len(spans), torch.int32),
        sample_weights=(torch.arange(segments) < len(spans)).to(torch.float32),
        max_seqlen=longest,
        max_seqlen_action=6,
        max_seqlen_kv=longest + 6,
        num_spans=len(spans),
        num_items_in_batch=0,
        num_action_items=int(mask[weights > 0].sum()),
        pack=0,
        step=step,
        slot=0,
        epoch=epoch,
        plan_hash="plan",
    )
