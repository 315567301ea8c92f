"""One observation as a packed batch of one span, laid out as the loader lays out spans."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.assembly.prefix import lay_out_prefix
from loader.assembly.span_texts import SpanTexts
from loader.batch import IGNORED_LABEL, Modality, PackedBatch
from packing.prompt_encoder import Prompt
from packing.prompt_ids import PromptIds
from packing.state_text import state_bins
from training.errors import ConfigError
from training.policy_spec import PolicySpec

_NO_PLAN: Final = ""


def observation_batch(
    spec: PolicySpec,
    *,
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    prompt: Prompt,
    ids: PromptIds,
    stats_id: int,
    embodiment_id: int,
    seed: int,
) -> PackedBatch[Tensor]:
    """Lay out text, pictures and state as in training, and a full chunk of action queries.

    Args:
        spec: of the policy.
        images: camera name -> [h, w, 3] uint8 RGB; cameras that are missing cost nothing.
        state: [Ds] in the recorded unit, as long as the spec's state.
        prompt: the instruction's text.
        ids: token ids beside it.
        stats_id: normalisation to use.
        embodiment_id: projections to use.
        seed: decides the noise that the actions start from.

    Raises:
        ConfigError: an unknown camera, a state or picture of the wrong shape, or a state that is
            not finite.
    """
    _check(spec, images, state, stats_id)
    cameras = sorted(spec.cameras.index(name) for name in images) if _sees(spec) else []
    buckets = _buckets([(camera, images[spec.cameras[camera]]) for camera in cameras])
    order = [camera for bucket in buckets for camera, _ in bucket]
    per_image = spec.layout.image_tokens
    prefix = lay_out_prefix(
        _text(spec, prompt, ids, state, stats_id),
        image_span=np.zeros(len(cameras), np.int32),
        image_nth=np.arange(len(cameras), dtype=np.int32),
        observed=np.ones(1, np.int32),
        layout=spec.layout,
        ids=ids,
    )
    # A batch has at least one token, so that an observation of nothing still runs every module.
    total = len(prefix.input_ids)
    tokens = max(total, 1)
    modality = torch.full((tokens,), Modality.PAD, dtype=torch.uint8)
    modality[:total] = torch.from_numpy(prefix.modality)
    input_ids = torch.full((tokens,), ids.pad)
    input_ids[:total] = torch.from_numpy(prefix.input_ids)
    starts = torch.from_numpy(prefix.image_first)[[cameras.index(camera) for camera in order]]
    image_index = (starts.long()[:, None] + torch.arange(per_image)).flatten()
    horizon, action_size = spec.horizon, len(spec.action[stats_id].mean)
    padded_state = torch.zeros(1, spec.state_dim)
    padded_state[0, : len(state)] = torch.from_numpy(np.asarray(state, np.float32))

    def one(value: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.tensor([value], dtype=dtype)

    def ends(stop: int) -> Tensor:
        return torch.tensor([0, stop], dtype=torch.int32)

    return PackedBatch(
        input_ids=input_ids,
        position_ids=torch.arange(tokens),
        segment_ids=torch.zeros(tokens, dtype=torch.int32),
        token_modality=modality,
        labels=torch.full((tokens,), IGNORED_LABEL),
        loss_weights=torch.zeros(tokens),
        cu_seqlens=ends(tokens),
        images=tuple(
            torch.from_numpy(np.stack([picture for _, picture in bucket]).transpose(0, 3, 1, 2))
            for bucket in buckets
        ),
        image_format="rgb",
        image_span_ids=torch.zeros(len(order), dtype=torch.int32),
        image_camera_ids=torch.tensor(order, dtype=torch.int16),
        image_step_index=torch.zeros(len(order), dtype=torch.int32),
        image_token_index=image_index,
        cu_image_tokens=torch.arange(len(order) + 1, dtype=torch.int32) * per_image,
        state=padded_state,
        state_dim_mask=torch.arange(spec.state_dim)[None] < len(state),
        state_step_index=torch.zeros(1, dtype=torch.int32),
        state_token_index=torch.from_numpy(prefix.state_tokens),
        cu_seqlens_state=ends(1),
        actions=torch.zeros(horizon, spec.action_dim),
        action_dim_mask=(torch.arange(spec.action_dim) < action_size).expand(horizon, -1),
        action_position_ids=torch.arange(horizon),
        action_loss_weights=torch.ones(horizon),
        cu_seqlens_action=ends(horizon),
        kv_index=torch.arange(tokens + horizon),
        cu_seqlens_kv=ends(tokens + horizon),
        embodiment_ids=one(embodiment_id),
        dataset_ids=one(-1),
        stats_ids=one(stats_id),
        span_ids=one(seed, torch.int64),
        occurrence_ids=one(0),
        episode_ids=one(-1, torch.int64),
        step_index=one(-1),
        sample_weights=torch.ones(1),
        max_seqlen=tokens,
        max_seqlen_action=horizon,
        max_seqlen_kv=tokens + horizon,
        num_spans=1,
        num_items_in_batch=0,
        num_action_items=horizon * action_size,
        pack=0,
        step=0,
        slot=0,
        epoch=0,
        plan_hash=_NO_PLAN,
    )


def _text(
    spec: PolicySpec, prompt: Prompt, ids: PromptIds, state: NDArray[np.float32], stats_id: int
) -> SpanTexts:
    """The text of the one span, with the state where the prompt writes it."""
    text = list(prompt.token_ids)
    if ids.state_text is not None:
        moments = spec.state[stats_id]
        bins = state_bins(
            np.asarray(state, np.float32),
            np.array(moments.q01, np.float32),
            np.array(moments.q99, np.float32),
        )
        text[prompt.state_at : prompt.state_at] = ids.state_text.ids(bins.tolist())
    return SpanTexts(
        ids=np.array(text, np.int64),
        lengths=np.array([len(text)], np.int32),
        images_at=np.array([prompt.images_at], np.int32),
    )


def _sees(spec: PolicySpec) -> bool:
    return spec.layout.image_tokens > 0


def _check(
    spec: PolicySpec,
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    stats_id: int,
) -> None:
    for name, picture in images.items():
        if name not in spec.cameras:
            raise ConfigError(
                f"the policy knows no camera {name!r}; it was trained with:"
                f" {', '.join(spec.cameras) or 'none'}"
            )
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(
                f"the picture of camera {name} is {picture.dtype}{list(picture.shape)}, expected"
                " uint8 [h, w, 3]"
            )
        size = spec.image_size
        if size is not None and picture.shape[:2] != (size, size):
            raise ConfigError(
                f"the picture of camera {name} is {picture.shape[1]}x{picture.shape[0]}, the"
                f" policy was trained on {size}x{size}: resize it first"
            )
    want = len(spec.state[stats_id].mean)
    if state.shape != (want,):
        raise ConfigError(f"the state has shape {list(state.shape)}, the policy expects [{want}]")
    if not np.isfinite(state).all():
        where = np.flatnonzero(~np.isfinite(state)).tolist()
        raise ConfigError(f"the state is not finite at elements {where}: no policy can act on it")


def _buckets(
    pictures: Sequence[tuple[int, NDArray[np.uint8]]],
) -> list[list[tuple[int, NDArray[np.uint8]]]]:
    """Pictures of one size together, sizes ascending, as the loader has them."""
    sizes = sorted({picture.shape[:2] for _, picture in pictures})
    return [[p for p in pictures if p[1].shape[:2] == size] for size in sizes]
