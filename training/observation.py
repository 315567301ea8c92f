"""One observation as a packed batch of one span, laid out as the loader lays out spans."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.batch import IGNORED_LABEL, Modality, PackedBatch
from packing.tokenizer import IMAGE_ID, PAD_ID, STATE_ID
from training.errors import ConfigError
from training.policy_spec import PolicySpec

_NO_PLAN: Final = ""


def observation_batch(
    spec: PolicySpec,
    *,
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    text_ids: Sequence[int],
    stats_id: int,
    embodiment_id: int,
    seed: int,
) -> PackedBatch[Tensor]:
    """Lay out pictures, then text, then state, and a full chunk of action queries.

    Args:
        spec: of the policy.
        images: camera name -> [h, w, 3] uint8 RGB; cameras that are missing cost nothing.
        state: [Ds] in the recorded unit, as long as the spec's state.
        text_ids: token ids of the instruction.
        stats_id: normalisation to use.
        embodiment_id: projections to use.
        seed: decides the noise that the actions start from.

    Raises:
        ConfigError: an unknown camera, or a state or picture of the wrong shape.
    """
    _check(spec, images, state, stats_id)
    cameras = sorted(spec.cameras.index(name) for name in images) if _sees(spec) else []
    buckets = _buckets([(camera, images[spec.cameras[camera]]) for camera in cameras])
    order = [camera for bucket in buckets for camera, _ in bucket]
    per_image, per_state = spec.layout.image_tokens, spec.layout.state_tokens
    first_text = len(cameras) * per_image
    first_state = first_text + len(text_ids)
    total = first_state + per_state + spec.layout.extra_tokens
    # A batch has at least one token, so that an observation of nothing still runs every module.
    tokens = max(total, 1)
    modality = torch.full((tokens,), Modality.EXTRA, dtype=torch.uint8)
    input_ids = torch.full((tokens,), PAD_ID)
    for first, stop, kind, token in (
        (0, first_text, Modality.IMAGE, IMAGE_ID),
        (first_text, first_state, Modality.TEXT, PAD_ID),
        (first_state, first_state + per_state, Modality.STATE, STATE_ID),
        (total, tokens, Modality.PAD, PAD_ID),
    ):
        modality[first:stop] = kind
        input_ids[first:stop] = token
    input_ids[first_text:first_state] = torch.tensor(text_ids, dtype=torch.int64)
    starts = torch.tensor([cameras.index(camera) * per_image for camera in order])
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
        state_token_index=torch.arange(first_state, first_state + per_state),
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


def _buckets(
    pictures: Sequence[tuple[int, NDArray[np.uint8]]],
) -> list[list[tuple[int, NDArray[np.uint8]]]]:
    """Pictures of one size together, sizes ascending, as the loader has them."""
    sizes = sorted({picture.shape[:2] for _, picture in pictures})
    return [[p for p in pictures if p[1].shape[:2] == size] for size in sizes]
