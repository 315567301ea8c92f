"""A pi0.5 that a CPU trains, with the token counts of the published one and its shares of work.

Packing removes tokens, so what it is worth depends on where the work is: in the linear layers,
which grow with tokens, in attention, which grows with their square, or in the vision tower, which
grows with pictures. Widths are reduced so that these shares stay as they are at the published
sizes: attention shrinks with the heads, the trunk with its width, the tower with width and depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from loader.batch import PackedBatch
from training.models.pi05.config import Pi05Config
from training.models.pi05.model import Pi05Policy
from training.policy_spec import PolicySpec

PUBLISHED: Final = Pi05Config(action_mask="full")
REDUCED: Final = Pi05Config(
    width=256,
    mlp_width=2048,
    expert_width=128,
    expert_mlp_width=512,
    layers=3,
    heads=2,
    head_dim=16,
    vision_width=96,
    vision_depth=5,
    vision_heads=4,
    vision_mlp_width=360,
    action_mask="full",
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Floating-point operations of a forward pass over batches.

    Attributes:
        total: of all.
        attention: scores and weighted sums of trunk and expert.
        vision: the vision tower, its own attention included.
    """

    total: float
    attention: float
    vision: float


def without_weights(config: Pi05Config, spec: PolicySpec) -> Pi05Policy:
    """A model of shapes alone, to count its work."""
    with torch.device("meta"):
        return Pi05Policy(config, spec)


def work_of(model: Pi05Policy, batches: Sequence[PackedBatch[Tensor]]) -> Work:
    """Count a model's work; it must have a vision tower."""
    assert model.vision is not None
    config = model.config
    pairs, pictures = 0.0, 0
    for batch in batches:
        prefix = batch.cu_seqlens.diff().double()
        action = batch.cu_seqlens_action.diff().double()
        spans = slice(batch.num_spans)
        pairs += float((prefix * prefix)[spans].sum()) * (config.layers - 1)
        pairs += float((action * (prefix + action))[spans].sum()) * config.layers
        pictures += len(batch.image_span_ids)
    return Work(
        total=sum(model.forward_flops(batch) for batch in batches),
        attention=4 * config.heads * config.head_dim * pairs,
        vision=model.vision.forward_flops(pictures),
    )
