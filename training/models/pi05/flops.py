"""Floating-point operations of a forward pass, from the true lengths of its segments."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from loader.batch import PackedBatch
from training.models.parts.norms import AdaptiveRmsNorm

if TYPE_CHECKING:
    from training.models.pi05.model import Pi05Policy


def forward_flops(policy: "Pi05Policy", batch: PackedBatch[Tensor]) -> float:
    """See `PolicyModel.forward_flops`."""
    config = policy.config
    prefix = batch.cu_seqlens.diff().to(torch.float64)[: batch.num_spans]
    action = batch.cu_seqlens_action.diff().to(torch.float64)[: batch.num_spans]
    seen = (action + 1) / 2 if policy.causal else action
    pairs = float((prefix * prefix).sum()) * (config.layers - 1)
    pairs += float((action * (prefix + seen)).sum()) * config.layers
    # Scores and weighted sum: two products of 2 * heads * head_dim each.
    attention = 4 * config.heads * config.head_dim * pairs
    # The flow time of a span is embedded, and modulates the norms, once for all its actions.
    norms = [module for module in policy.modules() if isinstance(module, AdaptiveRmsNorm)]
    per_span = _weights(policy.time_in, policy.time_out, *norms)
    per_query = _weights(policy.action_in, policy.expert, policy.norm_out, policy.action_out)
    per_query -= _weights(*norms)
    linear = 2 * (
        _weights(policy.trunk) * float(prefix.sum())
        + per_query * float(action.sum())
        + per_span * batch.num_spans
    )
    if policy.state_in is not None:
        linear += 2 * _weights(policy.state_in) * len(batch.state)
    if policy.vision is None or policy.vision_out is None:
        return attention + linear
    pictures = len(batch.image_span_ids)
    projected = 2 * _weights(policy.vision_out) * pictures * policy.vision.sizes.patches
    return attention + linear + projected + policy.vision.forward_flops(pictures)


def _weights(*modules: nn.Module) -> int:
    """Elements of the matrices."""
    return sum(p.numel() for module in modules for p in module.parameters() if p.ndim == 2)
