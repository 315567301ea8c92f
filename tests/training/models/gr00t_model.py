"""A GR00T N1.5 of a few thousand parameters, and its spec and batches, for the tests."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from loader.batch import PackedBatch
from tests.training.batches import Span, pack, policy_spec
from training.models.gr00t.config import GrootConfig
from training.models.gr00t.layers import AdaptiveLayerNorm
from training.models.gr00t.model import GrootPolicy
from training.policy_spec import PolicySpec

FUTURE = 3
SMALL = GrootConfig(
    width=32,
    mlp_width=40,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    image_size=16,
    vision_width=24,
    vision_depth=2,
    vision_heads=3,
    vision_mlp_width=32,
    adapter_layers=1,
    adapter_heads=2,
    dit_layers=3,
    dit_heads=3,
    dit_head_dim=8,
    hidden=20,
    state_dim=8,
    action_dim=6,
    max_positions=8,
    normalise="moments",
    flow_steps=3,
)


def groot_spec(*, future: int = FUTURE) -> PolicySpec:
    """Three embodiments, of which the batches of the tests have two."""
    spec = policy_spec()
    return dataclasses.replace(
        spec,
        layout=dataclasses.replace(spec.layout, extra_tokens=future),
        embodiments=(*spec.embodiments, "absent"),
    )


def small_policy(spec: PolicySpec | None = None, **changes: object) -> GrootPolicy:
    """With modulations that are not zero, as after training."""
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]
    model = GrootPolicy(config, groot_spec() if spec is None else spec)
    for module in model.modules():
        if isinstance(module, AdaptiveLayerNorm):
            torch.nn.init.normal_(module.dense.weight, std=0.1)
    return model


def groot_pack(spans: Sequence[Span], *, pad: int = 0, segments: int = 40) -> PackedBatch[Tensor]:
    return pack(spans, pad=pad, segments=segments, extra=FUTURE)
