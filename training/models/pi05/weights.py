"""Public weights of pi0.5, and of PaliGemma alone, into our parameters.

Names as `examples/convert_jax_model_to_pytorch.py` of openpi writes them and LeRobot's
`lerobot/pi05_base` has them, with or without LeRobot's `model.` before them; and those of
Hugging Face's `google/paligemma-3b-pt-224`, old and new. We keep projections together that they
keep apart (q, k, v; gate and up): a public tensor is then some rows of a parameter.

What we do not compute is passed over: the text heads, and of the trunk all that comes after the
keys and values of its last layer. The embeddings are those of the text head, and saved under either
name.
"""

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from training.errors import CheckpointError
from training.models.parts.decoder import DecoderLayer
from training.models.parts.norms import AdaptiveRmsNorm, RmsNorm
from training.models.parts.siglip import VisionLayer, VisionTower
from training.models.pi05.model import Pi05Policy

Source = Literal["pi05", "paligemma"]
"""Which part of the policy a file must fill: all of it, or its trunk and vision tower."""

_EMBED: Final = "language_model.embed_tokens.weight"
_HEAD: Final = "language_model.lm_head.weight"
# Tables are filled up to a multiple of 64 rows, and tokenizers get a few ids more (`<image>`).
_SPARE_ROWS: Final = 64
_NAMED: Final = 8


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
    targets = _targets(policy, source)
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(safe_open(p, framework="pt")) for p in _shards(path)]
            found = _found(files, policy, path)
            _check(targets, found, path)
            with torch.no_grad():
                for name, target in targets.items():
                    file, public = found[name]
                    rows = min(len(target), file.get_slice(public).get_shape()[0])
                    target[:rows].copy_(file.get_slice(public)[:rows])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
    filled = {target.untyped_storage().data_ptr() for target in targets.values()}
    return [n for n, p in policy.named_parameters() if p.untyped_storage().data_ptr() not in filled]


def _shards(path: Path) -> list[Path]:
    """The file, or all of the folder's."""
    if not path.is_dir():
        return [path]
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return [path / "model.safetensors"]
    names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return [path / name for name in sorted(names)]


def _found(files: list[Any], policy: Pi05Policy, path: Path) -> dict[str, tuple[Any, str]]:
    """Canonical name -> file and name in it, without what we do not compute."""
    found: dict[str, tuple[Any, str]] = {}
    unused = _unused(policy)
    for file in files:
        for public in file.keys():  # noqa: SIM118  (no mapping)
            name = canonical_name(public)
            if name in found:
                raise CheckpointError(f"{path}: {found[name][1]} and {public} are the same weights")
            if not unused.fullmatch(name):
                found[name] = (file, public)
    head = found.pop(_HEAD, None)
    if head is not None:
        found.setdefault(_EMBED, head)
    return found


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


def _check(targets: Mapping[str, Tensor], found: Mapping[str, tuple[Any, str]], path: Path) -> None:
    shapes = {name: file.get_slice(public).get_shape() for name, (file, public) in found.items()}
    faults = {
        "missing": [name for name in targets if name not in found],
        "unknown": [found[name][1] for name in found if name not in targets],
        "misshapen": [
            f"{found[name][1]} {shapes[name]}, expected {list(target.shape)}"
            for name, target in targets.items()
            if name in found and not _fits(name, shapes[name], target)
        ],
    }
    if any(faults.values()):
        said = "; ".join(
            f"{len(names)} {what}: {', '.join(names[:_NAMED])}"
            + (", ..." if len(names) > _NAMED else "")
            for what, names in faults.items()
            if names
        )
        raise CheckpointError(f"{path} does not hold the weights of this policy: {said}")


def _fits(name: str, shape: list[int], target: Tensor) -> bool:
    if name == _EMBED and shape[1:] == list(target.shape[1:]):
        return abs(shape[0] - len(target)) <= _SPARE_ROWS
    return shape == list(target.shape)


def _targets(policy: Pi05Policy, source: Source) -> dict[str, Tensor]:
    """Canonical name -> the parameter, or the rows of one, that the tensor fills."""
    targets: dict[str, Tensor] = {_EMBED: policy.embed.weight}
    for number, layer in enumerate(policy.trunk):
        targets |= _decoder_layer(f"language_model.layers.{number}", layer)
    if policy.vision is not None and policy.vision_out is not None:
        targets |= _vision(policy.vision)
        targets |= _linear("multi_modal_projector.linear", policy.vision_out)
    if source == "pi05":
        for number, layer in enumerate(policy.expert):
            targets |= _decoder_layer(f"gemma_expert.layers.{number}", layer)
        targets |= _norm("gemma_expert.norm", policy.norm_out)
        targets |= _linear("time_mlp_in", policy.time_in)
        targets |= _linear("time_mlp_out", policy.time_out)
        targets |= _linear("action_in_proj", policy.action_in)
        targets |= _linear("action_out_proj", policy.action_out)
    return targets


def _decoder_layer(prefix: str, layer: nn.Module) -> dict[str, Tensor]:
    assert isinstance(layer, DecoderLayer)
    sizes = layer.sizes
    keys = sizes.kv_heads * sizes.head_dim
    rows = [keys, keys] if layer.keys_only else [sizes.heads * sizes.head_dim, keys, keys]
    *queries, k, v = torch.split(layer.qkv.weight, rows)
    targets = {
        f"{prefix}.self_attn.k_proj.weight": k,
        f"{prefix}.self_attn.v_proj.weight": v,
        **_norm(f"{prefix}.input_layernorm", layer.norm_1),
    }
    if not layer.keys_only:
        gate, up = layer.mlp.gate_up.weight.chunk(2)
        targets |= {
            f"{prefix}.self_attn.q_proj.weight": queries[0],
            f"{prefix}.self_attn.o_proj.weight": layer.out.weight,
            f"{prefix}.mlp.gate_proj.weight": gate,
            f"{prefix}.mlp.up_proj.weight": up,
            f"{prefix}.mlp.down_proj.weight": layer.mlp.down.weight,
            **_norm(f"{prefix}.post_attention_layernorm", layer.norm_2),
        }
    return targets


def _vision(tower: VisionTower) -> dict[str, Tensor]:
    targets = {
        **_linear("vision_tower.embeddings.patch_embedding", tower.patches),
        "vision_tower.embeddings.position_embedding.weight": tower.position,
        **_linear("vision_tower.post_layernorm", tower.norm),
    }
    for number, layer in enumerate(tower.layers):
        assert isinstance(layer, VisionLayer)
        prefix = f"vision_tower.encoder.layers.{number}"
        for kind in ("weight", "bias"):
            parts = getattr(layer.qkv, kind).chunk(3)
            for name, part in zip("qkv", parts, strict=True):
                targets[f"{prefix}.self_attn.{name}_proj.{kind}"] = part
        for name, module in (
            ("self_attn.out_proj", layer.out),
            ("layer_norm1", layer.norm_1),
            ("layer_norm2", layer.norm_2),
            ("mlp.fc1", layer.up),
            ("mlp.fc2", layer.down),
        ):
            targets |= _linear(f"{prefix}.{name}", module)
    return targets


def _norm(prefix: str, norm: nn.Module) -> dict[str, Tensor]:
    if isinstance(norm, AdaptiveRmsNorm):
        return _linear(f"{prefix}.dense", norm.dense)
    assert isinstance(norm, RmsNorm)
    return {f"{prefix}.weight": norm.weight}


def _linear(prefix: str, module: nn.Linear | nn.LayerNorm | nn.Conv2d) -> dict[str, Tensor]:
    assert module.bias is not None
    return {f"{prefix}.weight": module.weight, f"{prefix}.bias": module.bias}
