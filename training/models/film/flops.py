"""Floating-point operations of a forward pass, from the true lengths of its segments."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from loader.batch import PackedBatch

if TYPE_CHECKING:
    from training.models.film.model import FilmPolicy


def forward_flops(policy: "FilmPolicy", batch: PackedBatch[Tensor]) -> float:
    """See `PolicyModel.forward_flops`."""
    config = policy.config
    prefix = batch.cu_seqlens.diff().to(torch.float64)[: batch.num_spans]
    action = batch.cu_seqlens_action.diff().to(torch.float64)[: batch.num_spans]
    pairs_prefix = float((prefix * prefix).sum()) * (config.layers - 1)
    # Causal among the actions.
    pairs_action = float((action * (prefix + (action + 1) / 2)).sum()) * config.layers
    # Scores and weighted sum: two products of 2 * heads * head_dim each.
    attention = 4 * config.heads * config.head_dim * (pairs_prefix + pairs_action)
    linear = 2 * (
        _weights(policy.trunk) * float(prefix.sum()) + _weights(policy.expert) * float(action.sum())
    )
    pixels = sum(_conv_flops(policy, bucket) for bucket in batch.images)
    return attention + linear + pixels


def _weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.ndim == 2)


def _conv_flops(policy: "FilmPolicy", bucket: Tensor) -> float:
    encoder = policy.image_encoder
    if encoder is None:
        return 0.0
    count, _, height, width = bucket.shape
    total = 0.0
    for conv in encoder.convolutions():
        height, width = (math.ceil(size / conv.stride[0]) for size in (height, width))
        total += 2.0 * conv.weight.numel() * height * width
    return float(count * (total + 2.0 * encoder.image_tokens * encoder.project.weight.numel()))
