"""Public weights of GR00T N1.5 into our parameters.

Names as nvidia/GR00T-N1.5-3B has them (`backbone.eagle_model.*`, `action_head.*`), with or without
LeRobot's `_groot_model.` before them.

What we do not compute is passed over: the text head and the pooling head of the vision tower, which
the published network does not run either. The embeddings are tied to the text head, and saved under
either name or both. A published layer holds weights for 32 embodiments; ours are those of the plan.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from torch import nn

from training.errors import ConfigError
from training.models.gr00t.layers import AdapterLayer, DitLayer, FeedForward
from training.models.gr00t.model import GrootPolicy
from training.models.parts.embodiment_groups import GroupedLinear
from training.models.parts.public_weights import (
    Target,
    decoder_targets,
    fill_from_public,
    linear_targets,
    norm_targets,
    split_linear_targets,
    vision_targets,
)

EMBODIMENT_SLOTS: Final[Mapping[str, int]] = MappingProxyType(
    {"gr1": 24, "oxe_droid": 17, "agibot_genie1": 26, "new_embodiment": 31}
)
"""Published embodiments, by their tags (`gr00t/data/embodiment_tags.py`)."""

_EMBED: Final = "language_model.embed_tokens.weight"
_HEAD: Final = "language_model.lm_head.weight"
# The table has more rows than the tokenizer has ids (151 680 against 151 670 or so).
_SPARE_ROWS: Final = 64


def load_public_weights(
    policy: GrootPolicy, path: Path, *, slots: Mapping[str, int] = MappingProxyType({})
) -> list[str]:
    """Fill a policy, tensor by tensor: beside it, one public tensor is in memory at a time.

    Names and shapes are checked before the first weight is touched. Weights are converted to the
    dtype that the policy's have.

    Args:
        policy: of sizes that match; on any device, not sharded yet.
        path: a safetensors file, or a folder with `model.safetensors` or its shards and index.
        slots: from which published embodiment (`EMBODIMENT_SLOTS` or a number) each embodiment of
            the plan begins, by its name; the others begin from `new_embodiment`.

    Returns:
        Names of our parameters that the file says nothing of: none.

    Raises:
        CheckpointError: the file cannot be read, or has missing, unknown or misshapen tensors (all
            are named).
        ConfigError: a slot is of no embodiment of the plan, or negative.
    """
    names = policy.spec.embodiments
    if unknown := [name for name in slots if name not in names or slots[name] < 0]:
        raise ConfigError(
            f"slots of embodiments {', '.join(unknown)}: the plan has {', '.join(names)}, and slots"
            " count from 0"
        )
    take = tuple(slots.get(name, EMBODIMENT_SLOTS["new_embodiment"]) for name in names)
    unused = _unused(policy)

    def canonical(public: str) -> str | None:
        name = canonical_name(public)
        return None if unused.fullmatch(name) else name

    return fill_from_public(
        policy, path, _targets(policy, take), canonical=canonical, instead={_HEAD: _EMBED}
    )


def canonical_name(public: str) -> str:
    """The name of a tensor without what differs between those who saved it."""
    name = public.removeprefix("_groot_model.").removeprefix("backbone.eagle_model.")
    name = re.sub(r"^vision_model\.vision_model\.", "vision_model.", name)
    return re.sub(r"^language_model\.model\.", "language_model.", name)


def _unused(policy: GrootPolicy) -> re.Pattern[str]:
    pattern = r"vision_model\.(head\..*|embeddings\.position_ids)"
    if policy.vision is None:
        pattern += r"|vision_model\..*|mlp1\..*"
    if policy.state_in is None:
        pattern += r"|action_head\.state_encoder\..*"
    if policy.future is None:
        pattern += r"|action_head\.future_tokens\..*"
    return re.compile(pattern)


def _targets(policy: GrootPolicy, take: tuple[int, ...]) -> dict[str, Target]:
    targets = {_EMBED: Target(policy.embed.weight, spare_rows=_SPARE_ROWS)}
    for number, layer in enumerate(policy.backbone):
        targets |= decoder_targets(f"language_model.layers.{number}", layer, one=1.0)
    targets |= norm_targets("language_model.norm", policy.backbone_norm, one=1.0)
    if policy.vision is not None and policy.vision_out is not None:
        targets |= vision_targets("vision_model", policy.vision)
        targets |= linear_targets("mlp1.0", policy.vision_out)
    head = "action_head"
    targets |= linear_targets(f"{head}.vlln", policy.adapter_norm)
    for number, layer in enumerate(policy.adapter):
        assert isinstance(layer, AdapterLayer)
        prefix = f"{head}.vl_self_attention.transformer_blocks.{number}"
        names = tuple(f"{prefix}.attn1.to_{name}" for name in "qkv")
        targets |= split_linear_targets(names, layer.qkv)
        targets |= linear_targets(f"{prefix}.attn1.to_out.0", layer.out)
        targets |= linear_targets(f"{prefix}.norm1", layer.norm_1)
        targets |= linear_targets(f"{prefix}.norm3", layer.norm_2)
        targets |= _mlp(prefix, layer.mlp)
    for number, layer in enumerate(policy.dit):
        assert isinstance(layer, DitLayer)
        prefix = f"{head}.model.transformer_blocks.{number}"
        q, k, v = (f"{prefix}.attn1.to_{name}" for name in "qkv")
        if number % 2:
            targets |= split_linear_targets((q, k, v), layer.project)
        else:
            targets |= linear_targets(q, layer.project)
            kv = policy.observed_kv[number // 2]
            assert isinstance(kv, nn.Linear)
            targets |= split_linear_targets((k, v), kv)
        targets |= linear_targets(f"{prefix}.attn1.to_out.0", layer.out)
        targets |= linear_targets(f"{prefix}.norm1.linear", layer.norm_1.dense)
        targets |= _mlp(prefix, layer.mlp)
    time = f"{head}.model.timestep_encoder.timestep_embedder"
    targets |= linear_targets(f"{time}.linear_1", policy.time_in.linear_1)
    targets |= linear_targets(f"{time}.linear_2", policy.time_in.linear_2)
    targets |= linear_targets(f"{head}.model.proj_out_1", policy.norm_out.dense)
    targets |= linear_targets(f"{head}.model.proj_out_2", policy.out)
    targets[f"{head}.position_embedding.weight"] = Target(policy.position.weight)
    if policy.future is not None:
        targets[f"{head}.future_tokens.weight"] = Target(policy.future)
    grouped = {
        "action_encoder.W1": policy.action_in.layer_1,
        "action_encoder.W2": policy.action_in.layer_2,
        "action_encoder.W3": policy.action_in.layer_3,
        "action_decoder.layer1": policy.action_out.layer_1,
        "action_decoder.layer2": policy.action_out.layer_2,
    }
    if policy.state_in is not None:
        grouped["state_encoder.layer1"] = policy.state_in.layer_1
        grouped["state_encoder.layer2"] = policy.state_in.layer_2
    for name, grouped_layer in grouped.items():
        targets |= _grouped(f"{head}.{name}", grouped_layer, take)
    return targets


def _mlp(prefix: str, mlp: FeedForward) -> dict[str, Target]:
    return {
        **linear_targets(f"{prefix}.ff.net.0.proj", mlp.up),
        **linear_targets(f"{prefix}.ff.net.2", mlp.down),
    }


def _grouped(prefix: str, layer: GroupedLinear, take: tuple[int, ...]) -> dict[str, Target]:
    return {
        f"{prefix}.W": Target(layer.weight, take=take),
        f"{prefix}.b": Target(layer.bias, take=take),
    }
