"""Public safetensors into our parameters: names, shapes, and one tensor in memory at a time.

We keep projections together that are published apart (q, k, v; gate and up): a public tensor is
then some rows of a parameter. What a policy does with it: say which name fills what.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from training.errors import CheckpointError
from training.models.parts.decoder import DecoderLayer
from training.models.parts.norms import AdaptiveRmsNorm, RmsNorm
from training.models.parts.siglip import VisionLayer, VisionTower

_NAMED: Final = 8


@dataclass(frozen=True, eq=False)
class Target:
    """What a public tensor fills.

    Attributes:
        tensor: the parameter, or rows of one.
        minus: to be taken off what is public.
        spare_rows: the public tensor may have so many rows more or fewer; the rest stays as it is.
        take: rows of the public tensor that ours are, one for each; None for all in their order.
    """

    tensor: Tensor
    minus: float = 0.0
    spare_rows: int = 0
    take: tuple[int, ...] | None = None

    def fits(self, shape: list[int]) -> bool:
        """Whether a public tensor of this shape can fill it."""
        if shape[1:] != list(self.tensor.shape[1:]):
            return False
        if self.take is not None:
            return max(self.take) < shape[0]
        return abs(shape[0] - len(self.tensor)) <= self.spare_rows

    @property
    def wants(self) -> str:
        """The shape that fits, for people."""
        shape = list(self.tensor.shape)
        if self.take is None:
            return str(shape)
        return str([f"at least {max(self.take) + 1}", *shape[1:]]).replace("'", "")

    def fill(self, public: Any) -> None:  # noqa: ANN401  (a slice of safetensors, which has no types)
        """Copy what is public, converted to the dtype that the parameter has."""
        if self.take is not None:
            for ours, row in enumerate(self.take):
                self.tensor[ours : ours + 1].copy_(public[row : row + 1])
            return
        rows = min(len(self.tensor), public.get_shape()[0])
        if self.minus:
            self.tensor[:rows].copy_(public[:rows].float() - self.minus)
        else:
            self.tensor[:rows].copy_(public[:rows])


Targets = Mapping[str, Target]
"""By canonical name."""


def fill_from_public(
    policy: nn.Module,
    path: Path,
    targets: Targets,
    *,
    canonical: Callable[[str], str | None],
    instead: Mapping[str, str],
) -> list[str]:
    """Fill parameters, tensor by tensor; names and shapes are checked before the first is touched.

    Args:
        policy: on any device, not sharded yet.
        path: a safetensors file, or a folder with `model.safetensors` or its shards and index.
        targets: what each public tensor fills; all must be there.
        canonical: public name -> name in `targets`, None for what is not computed here.
        instead: canonical name -> the one that it stands for where that is not saved.

    Returns:
        Names of the policy's parameters that no target fills.

    Raises:
        CheckpointError: the file cannot be read, or has missing, unknown or misshapen tensors (all
            kinds are named).
    """
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(safe_open(p, framework="pt")) for p in _shards(path)]
            found = _found(files, path, canonical, instead)
            _check(targets, found, path)
            with torch.no_grad():
                for name, target in targets.items():
                    file, public = found[name]
                    target.fill(file.get_slice(public))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
    filled = {target.tensor.untyped_storage().data_ptr() for target in targets.values()}
    return [n for n, p in policy.named_parameters() if p.untyped_storage().data_ptr() not in filled]


def linear_targets(prefix: str, module: nn.Linear | nn.LayerNorm | nn.Conv2d) -> dict[str, Target]:
    """Weight and bias."""
    assert module.bias is not None
    return {f"{prefix}.weight": Target(module.weight), f"{prefix}.bias": Target(module.bias)}


def split_linear_targets(prefixes: tuple[str, ...], module: nn.Linear) -> dict[str, Target]:
    """Weight and bias of layers of equal width that are published apart."""
    targets = {}
    for kind in ("weight", "bias"):
        parts = getattr(module, kind).chunk(len(prefixes))
        for prefix, part in zip(prefixes, parts, strict=True):
            targets[f"{prefix}.{kind}"] = Target(part)
    return targets


def norm_targets(prefix: str, norm: nn.Module, *, one: float = 0.0) -> dict[str, Target]:
    """Of RMS norms.

    Args:
        prefix: of their names.
        norm: the norm.
        one: 1 where what is published is the whole factor, ours being what it is above 1.
    """
    if isinstance(norm, AdaptiveRmsNorm):
        return linear_targets(f"{prefix}.dense", norm.dense)
    assert isinstance(norm, RmsNorm)
    return {f"{prefix}.weight": Target(norm.weight, minus=one)}


def decoder_targets(prefix: str, layer: nn.Module, *, one: float = 0.0) -> dict[str, Target]:
    """Of a decoder layer as Hugging Face names Gemma's and Qwen3's; `one` as in `norm_targets`."""
    assert isinstance(layer, DecoderLayer)
    sizes = layer.sizes
    keys = sizes.kv_heads * sizes.head_dim
    rows = [keys, keys] if layer.keys_only else [sizes.heads * sizes.head_dim, keys, keys]
    *queries, k, v = torch.split(layer.qkv.weight, rows)
    targets = {
        f"{prefix}.self_attn.k_proj.weight": Target(k),
        f"{prefix}.self_attn.v_proj.weight": Target(v),
        **norm_targets(f"{prefix}.input_layernorm", layer.norm_1, one=one),
    }
    if layer.norm_k is not None:
        targets |= norm_targets(f"{prefix}.self_attn.k_norm", layer.norm_k, one=one)
    if layer.keys_only:
        return targets
    if layer.norm_q is not None:
        targets |= norm_targets(f"{prefix}.self_attn.q_norm", layer.norm_q, one=one)
    gate, up = layer.mlp.gate_up.weight.chunk(2)
    return targets | {
        f"{prefix}.self_attn.q_proj.weight": Target(queries[0]),
        f"{prefix}.self_attn.o_proj.weight": Target(layer.out.weight),
        f"{prefix}.mlp.gate_proj.weight": Target(gate),
        f"{prefix}.mlp.up_proj.weight": Target(up),
        f"{prefix}.mlp.down_proj.weight": Target(layer.mlp.down.weight),
        **norm_targets(f"{prefix}.post_attention_layernorm", layer.norm_2, one=one),
    }


def vision_targets(prefix: str, tower: VisionTower) -> dict[str, Target]:
    """Of a vision tower as Hugging Face names SigLIP's."""
    targets = {
        **linear_targets(f"{prefix}.embeddings.patch_embedding", tower.patches),
        f"{prefix}.embeddings.position_embedding.weight": Target(tower.position),
        **linear_targets(f"{prefix}.post_layernorm", tower.norm),
    }
    for number, layer in enumerate(tower.layers):
        assert isinstance(layer, VisionLayer)
        inside = f"{prefix}.encoder.layers.{number}"
        names = tuple(f"{inside}.self_attn.{name}_proj" for name in "qkv")
        targets |= split_linear_targets(names, layer.qkv)
        for name, module in (
            ("self_attn.out_proj", layer.out),
            ("layer_norm1", layer.norm_1),
            ("layer_norm2", layer.norm_2),
            ("mlp.fc1", layer.up),
            ("mlp.fc2", layer.down),
        ):
            targets |= linear_targets(f"{inside}.{name}", module)
    return targets


def _shards(path: Path) -> list[Path]:
    """The file, or all of the folder's."""
    if not path.is_dir():
        return [path]
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return [path / "model.safetensors"]
    names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return [path / name for name in sorted(names)]


def _found(
    files: list[Any],
    path: Path,
    canonical: Callable[[str], str | None],
    instead: Mapping[str, str],
) -> dict[str, tuple[Any, str]]:
    """Canonical name -> file and name in it, without what is not computed."""
    found: dict[str, tuple[Any, str]] = {}
    for file in files:
        for public in file.keys():  # noqa: SIM118  (no mapping)
            name = canonical(public)
            if name is None:
                continue
            if name in found:
                raise CheckpointError(f"{path}: {found[name][1]} and {public} are the same weights")
            found[name] = (file, public)
    for name, meant in instead.items():
        if name in found:
            found.setdefault(meant, found.pop(name))
    return found


def _check(targets: Targets, found: Mapping[str, tuple[Any, str]], path: Path) -> None:
    shapes = {name: file.get_slice(public).get_shape() for name, (file, public) in found.items()}
    faults = {
        "missing": [name for name in targets if name not in found],
        "unknown": [found[name][1] for name in found if name not in targets],
        "misshapen": [
            f"{found[name][1]} {shapes[name]}, expected {target.wants}"
            for name, target in targets.items()
            if name in found and not target.fits(shapes[name])
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
