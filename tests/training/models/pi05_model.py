"""A pi0.5 of a few thousand parameters, and its spec, for the tests."""

import dataclasses

import torch

from tests.training.batches import policy_spec
from training.models.parts.norms import AdaptiveRmsNorm
from training.models.pi05.config import Pi05Config
from training.models.pi05.model import Pi05Policy
from training.policy_spec import PolicySpec

SMALL = Pi05Config(
    width=32,
    mlp_width=48,
    expert_width=24,
    expert_mlp_width=40,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    image_size=16,
    vision_width=24,
    vision_depth=2,
    vision_heads=3,
    vision_mlp_width=32,
    action_dim=6,
    normalise="moments",
    flow_steps=3,
)


def small_policy(spec: PolicySpec | None = None, **changes: object) -> Pi05Policy:
    """With modulations that are not zero, as after training."""
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]
    model = Pi05Policy(config, policy_spec() if spec is None else spec)
    for module in model.modules():
        if isinstance(module, AdaptiveRmsNorm):
            torch.nn.init.normal_(module.dense.weight, std=0.1)
    return model
