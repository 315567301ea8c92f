"""Public weights of pi0.5, and of PaliGemma alone, into our parameters.

Names as `examples/convert_jax_model_to_pytorch.py` of openpi writes them and LeRobot's
`lerobot/pi05_base` has them, with or without LeRobot's `model.` before them; and those of
Hugging Face's `google/paligemma-3b-pt-224`, old and new.

What we do not compute is passed over: the text heads, and of the trunk all that comes after the
keys and values of its last layer. The embeddings are those of the text head, and saved under either
name.
"""

import re
from pathlib import Path
from typing import Final, Literal

from training.models.parts.public_weights import (
    Target,
    decoder_targets,
    fill_from_public,
    linear_targets,
    norm_targets,
    vision_targets,
)
from training.models.pi05.model import Pi05Policy

Source = Literal["pi05", "paligemma"]
"""Which part of the policy a file must fill: all of it, or its trunk and vision tower."""

_EMBED: Final = "language_model.embed_tokens.weight"
_HEAD: Final = "language_model.lm_head.weight"
# Tables are filled up to a multiple of 64 rows, and tokenizers get a few ids more (`<image>`).
_SPARE_ROWS: Final = 64


def load_public_weights(policy: Pi05Policy, path: Path, *, source: Source = "pi05") -> list[str]:
    """Fill a policy, tensor by tensor: beside it, one public tensor is in memory at a time.

    Names and shapes are checked before the first weight is touched. Weights are converted to the
    dtype that the policy's have.

    Args:
        policy: of sizes that match; on any device, not sharded yet.
        path: a safetensors file, or a folder with `model.safetensors` or its shards and index.
        source: `pi05`, or `paligemma` to begin with the trunk and the vision tower alone.

    Returns:
        Names of our parameters that the file says nothing of, and that stay as they were: a
        projection of states as tokens, and with `paligemma` all of the action expert.

    Raises:
        CheckpointError: the file cannot be read, or has missing, unknown or misshapen tensors (all
            are named).
    """
    unused = _unused(policy)

    def canonical(public: str) -> str | None:
        name = canonical_name(public)
        return None if unused.fullmatch(name) else name

    return fill_from_public(
        policy, path, _targets(policy, source), canonical=canonical, instead={_HEAD: _EMBED}
    )


def canonical_name(public: str) -> str:
    """The name of a tensor without what differs between those who saved it."""
    name = public.removeprefix("model.").removeprefix("paligemma_with_expert.")
    name = name.removeprefix("paligemma.").removeprefix("model.")
    name = re.sub(r"^(language_model|gemma_expert)\.model\.", r"\1.", name)
    name = re.sub(r"^vision_tower\.vision_model\.", "vision_tower.", name)
    return _HEAD if name == "lm_head.weight" else name


def _unused(policy: Pi05Policy) -> re.Pattern[str]:
    last = len(policy.trunk) - 1
    after_keys = r"self_attn\.(q|o)_proj|mlp\.(gate|up|down)_proj|post_attention_layernorm"
    pattern = (
        rf"language_model\.layers\.{last}\.({after_keys})\.weight|language_model\.norm\.weight"
        r"|gemma_expert\.lm_head\.weight|vision_tower\.embeddings\.position_ids"
    )
    if policy.vision is None:
        pattern += r"|vision_tower\..*|multi_modal_projector\..*"
    return re.compile(pattern)


def _targets(policy: Pi05Policy, source: Source) -> dict[str, Target]:
    targets = {_EMBED: Target(policy.embed.weight, spare_rows=_SPARE_ROWS)}
    for number, layer in enumerate(policy.trunk):
        targets |= decoder_targets(f"language_model.layers.{number}", layer)
    if policy.vision is not None and policy.vision_out is not None:
        targets |= vision_targets("vision_tower", policy.vision)
        targets |= linear_targets("multi_modal_projector.linear", policy.vision_out)
    if source == "pi05":
        for number, layer in enumerate(policy.expert):
            targets |= decoder_targets(f"gemma_expert.layers.{number}", layer)
        targets |= norm_targets("gemma_expert.norm", policy.norm_out)
        targets |= linear_targets("time_mlp_in", policy.time_in)
        targets |= linear_targets("time_mlp_out", policy.time_out)
        targets |= linear_targets("action_in_proj", policy.action_in)
        targets |= linear_targets("action_out_proj", policy.action_out)
    return targets
