"""pi0.5 as it is published: names and shapes of its tensors, and its network written out plainly.

Facts of github.com/Physical-Intelligence/openpi at 15a9616 (`models/gemma.py`, `models/siglip.py`,
`models_pytorch/`, `examples/convert_jax_model_to_pytorch.py`), for one observation.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor

from training.models.pi05.config import Pi05Config

PALIGEMMA = "paligemma_with_expert.paligemma.model."
EXPERT = "paligemma_with_expert.gemma_expert.model."
HEAD = "paligemma_with_expert.paligemma.lm_head.weight"

Shapes = dict[str, tuple[int, ...]]


def published_shapes(config: Pi05Config, *, vocab_size: int, patch: int) -> Shapes:
    """All tensors of a converted checkpoint; the embeddings are saved as the text head's."""
    width, vision = config.width, config.vision_width
    patches = (config.image_size // patch) ** 2
    shapes: Shapes = {
        HEAD: (vocab_size, width),
        "paligemma_with_expert.gemma_expert.lm_head.weight": (vocab_size, config.expert_width),
        f"{PALIGEMMA}language_model.norm.weight": (width,),
        **_linear(f"{PALIGEMMA}multi_modal_projector.linear", vision, width),
        **_linear(f"{EXPERT}norm.dense", config.expert_width, 3 * config.expert_width),
        **_linear("action_in_proj", config.action_dim, config.expert_width),
        **_linear("action_out_proj", config.expert_width, config.action_dim),
        **_linear("time_mlp_in", config.expert_width, config.expert_width),
        **_linear("time_mlp_out", config.expert_width, config.expert_width),
    }
    tower = f"{PALIGEMMA}vision_tower.vision_model."
    shapes |= {
        f"{tower}embeddings.patch_embedding.weight": (vision, 3, patch, patch),
        f"{tower}embeddings.patch_embedding.bias": (vision,),
        f"{tower}embeddings.position_embedding.weight": (patches, vision),
        **_norm(f"{tower}post_layernorm", vision),
    }
    for layer in range(config.vision_depth):
        prefix = f"{tower}encoder.layers.{layer}."
        shapes |= _norm(f"{prefix}layer_norm1", vision) | _norm(f"{prefix}layer_norm2", vision)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _linear(f"{prefix}self_attn.{name}", vision, vision)
        shapes |= _linear(f"{prefix}mlp.fc1", vision, config.vision_mlp_width)
        shapes |= _linear(f"{prefix}mlp.fc2", config.vision_mlp_width, vision)
    for layer in range(config.layers):
        prefix = f"{PALIGEMMA}language_model.layers.{layer}."
        shapes |= _gemma_layer(prefix, config, width, config.mlp_width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = (width,)
        prefix, expert = f"{EXPERT}layers.{layer}.", config.expert_width
        shapes |= _gemma_layer(prefix, config, expert, config.expert_mlp_width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes |= _linear(f"{prefix}{name}.dense", expert, 3 * expert)
    return shapes


def numel(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _gemma_layer(prefix: str, config: Pi05Config, width: int, hidden: int) -> Shapes:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        f"{prefix}self_attn.q_proj.weight": (queries, width),
        f"{prefix}self_attn.k_proj.weight": (keys, width),
        f"{prefix}self_attn.v_proj.weight": (keys, width),
        f"{prefix}self_attn.o_proj.weight": (width, queries),
        f"{prefix}mlp.gate_proj.weight": (hidden, width),
        f"{prefix}mlp.up_proj.weight": (hidden, width),
        f"{prefix}mlp.down_proj.weight": (width, hidden),
    }


def _linear(name: str, width_in: int, width_out: int) -> Shapes:
    return {f"{name}.weight": (width_out, width_in), f"{name}.bias": (width_out,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


class PublishedPi05:
    """The published network on one observation, every token attending under a dense mask."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Pi05Config) -> None:
        self.tensors, self.config = tensors, config

    def velocity(self, pictures: Tensor, ids: Tensor, noised: Tensor, time: float) -> Tensor:
        """[I, 3, h, w] from -1 to 1, [L], [A, action_dim], time from 1 (noise) to 0 -> [A, dim]."""
        config = self.config
        seen = self._apply(
            f"{PALIGEMMA}multi_modal_projector.linear", self._siglip(pictures)
        ).flatten(0, 1)
        words = self.tensors[HEAD][ids] * math.sqrt(config.width)
        streams = [torch.cat((seen, words)), self._apply("action_in_proj", noised)]
        half = torch.linspace(0.0, 1.0, config.expert_width // 2, dtype=torch.float64)
        angles = time * 2 * math.pi / (4e-3 * 1000.0**half)
        condition = torch.cat((angles.sin(), angles.cos())).float()
        for name in ("time_mlp_in", "time_mlp_out"):
            condition = F.silu(self._apply(name, condition))
        sizes = [len(stream) for stream in streams]
        mask = torch.ones(sum(sizes), sum(sizes), dtype=torch.bool)
        mask[: sizes[0], sizes[0] :] = False
        for layer in range(config.layers):
            streams = self._gemma_layers(layer, streams, condition, mask)
        normed, _ = self._adarms(f"{EXPERT}norm", streams[1], condition)
        return self._apply("action_out_proj", normed)

    def _gemma_layers(
        self, layer: int, streams: list[Tensor], condition: Tensor, mask: Tensor
    ) -> list[Tensor]:
        config, sizes = self.config, [len(stream) for stream in streams]
        prefixes = (f"{PALIGEMMA}language_model.layers.{layer}.", f"{EXPERT}layers.{layer}.")
        normed = [
            self._adarms(f"{prefix}input_layernorm", stream, condition)
            for prefix, stream in zip(prefixes, streams, strict=True)
        ]
        q, k, v = (
            torch.cat(
                [
                    self._apply(f"{prefix}self_attn.{name}_proj", each)
                    for prefix, (each, _) in zip(prefixes, normed, strict=True)
                ]
            ).reshape(sum(sizes), -1, config.head_dim)
            for name in "qkv"
        )
        q, k = _rope(q), _rope(k)
        k, v = (t.repeat_interleave(config.heads // config.kv_heads, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(config.head_dim)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        attended = torch.split(torch.einsum("hqk,khd->qhd", weights, v).flatten(1), sizes)
        out = []
        for prefix, x, (_, gate), seen in zip(prefixes, streams, normed, attended, strict=True):
            y = x + gate * self._apply(f"{prefix}self_attn.o_proj", seen)
            h, gate_2 = self._adarms(f"{prefix}post_attention_layernorm", y, condition)
            opened = F.gelu(self._apply(f"{prefix}mlp.gate_proj", h), approximate="tanh")
            h = opened * self._apply(f"{prefix}mlp.up_proj", h)
            out.append(y + gate_2 * self._apply(f"{prefix}mlp.down_proj", h))
        return out

    def _adarms(self, name: str, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        if f"{name}.weight" in self.tensors:
            return normed * (1 + self.tensors[f"{name}.weight"]), torch.ones(())
        scale, shift, gate = self._apply(f"{name}.dense", condition).chunk(3)
        return normed * (1 + scale) + shift, gate

    def _siglip(self, pictures: Tensor) -> Tensor:
        tower = f"{PALIGEMMA}vision_tower.vision_model."
        weight = self.tensors[f"{tower}embeddings.patch_embedding.weight"]
        bias = self.tensors[f"{tower}embeddings.patch_embedding.bias"]
        x = F.conv2d(pictures, weight, bias, stride=weight.shape[2]).flatten(2).transpose(1, 2)
        x = x + self.tensors[f"{tower}embeddings.position_embedding.weight"]
        for layer in range(self.config.vision_depth):
            prefix = f"{tower}encoder.layers.{layer}."
            h = self._layer_norm(f"{prefix}layer_norm1", x)
            q, k, v = (
                self._apply(f"{prefix}self_attn.{name}_proj", h)
                .reshape(*h.shape[:2], self.config.vision_heads, -1)
                .transpose(1, 2)
                for name in "qkv"
            )
            weights = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(-1)
            seen = (weights @ v).transpose(1, 2).flatten(2)
            x = x + self._apply(f"{prefix}self_attn.out_proj", seen)
            h = self._apply(f"{prefix}mlp.fc1", self._layer_norm(f"{prefix}layer_norm2", x))
            x = x + self._apply(f"{prefix}mlp.fc2", F.gelu(h, approximate="tanh"))
        return self._layer_norm(f"{tower}post_layernorm", x)

    def _layer_norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps=1e-6)

    def _apply(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))


def _rope(x: Tensor) -> Tensor:
    """[T, H, D] at positions 0, 1, ..."""
    size = x.shape[-1]
    wavelengths = 10_000 ** (2.0 / size * torch.arange(size // 2))
    angles = (torch.arange(len(x))[:, None] / wavelengths)[:, None]
    first, second = x.chunk(2, -1)
    sin, cos = angles.sin(), angles.cos()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
