"""Floating-point operations of a forward pass, from the true lengths of its segments."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from loader.batch import PackedBatch
from training.models.gr00t.layers import AdaptiveLayerNorm

if TYPE_CHECKING:
    from training.models.gr00t.model import GrootPolicy


def forward_flops(policy: "GrootPolicy", batch: PackedBatch[Tensor]) -> float:
    """See `PolicyModel.forward_flops`."""
    config, layout, spans = policy.config, policy.spec.layout, batch.num_spans
    lengths = (batch.cu_seqlens, batch.cu_seqlens_state, batch.cu_seqlens_action)
    prefix, states, actions = (cu.diff().to(torch.float64)[:spans] for cu in lengths)
    beside = states * layout.state_tokens + layout.extra_tokens
    read, own = prefix - beside, beside + actions

    # Scores and weighted sum: two products of 2 * heads * head_dim for each pair. Half the pairs of
    # a causal segment, and its diagonal, are computed.
    pairs = config.heads * config.head_dim * config.layers * float((read * (read + 1) / 2).sum())
    pairs += config.width * config.adapter_layers * float((read * read).sum())
    reading = (config.dit_layers + 1) // 2
    pairs += config.dit_width * reading * float((own * read).sum())
    among = own * own
    if policy.causal:
        among = beside * beside + actions * (beside + (actions + 1) / 2)
    pairs += config.dit_width * (config.dit_layers - reading) * float(among.sum())

    # The flow time of a span is embedded, and modulates the norms, once for all its tokens.
    norms = [module for module in policy.dit.modules() if isinstance(module, AdaptiveLayerNorm)]
    total = 4 * pairs + 2 * (
        _weights(policy.backbone, policy.adapter, policy.observed_kv) * float(read.sum())
        + (_weights(policy.dit) - _weights(*norms)) * float(own.sum())
        + _weights(policy.time_in, policy.norm_out, *norms) * spans
        + _weights(policy.out) * float(actions.sum())
        # Of an embodiment's layers a row goes through its own.
        + _each(policy, policy.action_in, policy.action_out) * float(actions.sum())
    )
    if policy.state_in is not None:
        total += 2 * _each(policy, policy.state_in) * len(batch.state)
    if policy.vision is None or policy.vision_out is None:
        return total
    pictures = len(batch.image_span_ids)
    projected = 2 * _weights(policy.vision_out) * pictures * policy.vision.sizes.patches
    return total + projected + policy.vision.forward_flops(pictures)


def _weights(*modules: nn.Module) -> int:
    """Elements of the matrices."""
    return sum(p.numel() for module in modules for p in module.parameters() if p.ndim == 2)


def _each(policy: "GrootPolicy", *modules: nn.Module) -> int:
    """Elements of the matrices of one embodiment."""
    stacks = [p for module in modules for p in module.parameters() if p.ndim == 3]
    return sum(p.numel() for p in stacks) // len(policy.spec.embodiments)
