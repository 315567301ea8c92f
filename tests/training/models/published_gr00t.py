"""GR00T N1.5 as it is published: names and shapes of its tensors, its network written out plainly.

Facts of github.com/NVIDIA/Isaac-GR00T, release n1.5 (`gr00t/model/action_head/`,
`gr00t/model/backbone/`), and of the networks that it takes from transformers 4.51 (SigLIP, Qwen3)
and diffusers (`Attention`, `FeedForward`, `Timesteps`), for one observation and without dropout.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor

from training.models.gr00t.config import GrootConfig

EAGLE = "backbone.eagle_model."
LANGUAGE = f"{EAGLE}language_model.model."
VISION = f"{EAGLE}vision_model.vision_model."
EMBED = f"{LANGUAGE}embed_tokens.weight"
HEAD = f"{EAGLE}language_model.lm_head.weight"
ACTION = "action_head."
EMBODIMENTS = 32

Shapes = dict[str, tuple[int, ...]]


def published_shapes(
    config: GrootConfig, *, vocab_size: int, patch: int, future: int, embodiments: int = EMBODIMENTS
) -> Shapes:
    """All tensors of a checkpoint."""
    width, inner, hidden = config.width, config.dit_width, config.hidden
    shapes: Shapes = {EMBED: (vocab_size, width), HEAD: (vocab_size, width)}
    shapes |= _vision(config, patch)
    shapes |= _linear(f"{EAGLE}mlp1.0", config.vision_width, width)
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for layer in range(config.layers):
        prefix = f"{LANGUAGE}layers.{layer}."
        shapes |= {
            f"{prefix}self_attn.q_proj.weight": (queries, width),
            f"{prefix}self_attn.k_proj.weight": (keys, width),
            f"{prefix}self_attn.v_proj.weight": (keys, width),
            f"{prefix}self_attn.o_proj.weight": (width, queries),
            f"{prefix}self_attn.q_norm.weight": (config.head_dim,),
            f"{prefix}self_attn.k_norm.weight": (config.head_dim,),
            f"{prefix}mlp.gate_proj.weight": (config.mlp_width, width),
            f"{prefix}mlp.up_proj.weight": (config.mlp_width, width),
            f"{prefix}mlp.down_proj.weight": (width, config.mlp_width),
            f"{prefix}input_layernorm.weight": (width,),
            f"{prefix}post_attention_layernorm.weight": (width,),
        }
    shapes[f"{LANGUAGE}norm.weight"] = (width,)
    shapes |= _norm(f"{ACTION}vlln", width)
    for layer in range(config.adapter_layers):
        prefix = f"{ACTION}vl_self_attention.transformer_blocks.{layer}."
        shapes |= _block(prefix, width, width)
        shapes |= _norm(f"{prefix}norm1", width) | _norm(f"{prefix}norm3", width)
    for layer in range(config.dit_layers):
        prefix = f"{ACTION}model.transformer_blocks.{layer}."
        shapes |= _block(prefix, inner, inner if layer % 2 else width)
        shapes |= _linear(f"{prefix}norm1.linear", inner, 2 * inner)
    time = f"{ACTION}model.timestep_encoder.timestep_embedder."
    shapes |= _linear(f"{time}linear_1", 256, inner) | _linear(f"{time}linear_2", inner, inner)
    shapes |= _linear(f"{ACTION}model.proj_out_1", inner, 2 * inner)
    shapes |= _linear(f"{ACTION}model.proj_out_2", inner, hidden)
    shapes[f"{ACTION}position_embedding.weight"] = (config.max_positions, inner)
    shapes[f"{ACTION}future_tokens.weight"] = (future, inner)
    for name, width_in, width_out in (
        ("state_encoder.layer1", config.state_dim, hidden),
        ("state_encoder.layer2", hidden, inner),
        ("action_encoder.W1", config.action_dim, inner),
        ("action_encoder.W2", 2 * inner, inner),
        ("action_encoder.W3", inner, inner),
        ("action_decoder.layer1", hidden, hidden),
        ("action_decoder.layer2", hidden, config.action_dim),
    ):
        shapes[f"{ACTION}{name}.W"] = (embodiments, width_in, width_out)
        shapes[f"{ACTION}{name}.b"] = (embodiments, width_out)
    return shapes


def pooling_head(config: GrootConfig) -> Shapes:
    """Of the vision tower; saved and not run."""
    width, prefix = config.vision_width, f"{VISION}head."
    return {
        f"{prefix}probe": (1, 1, width),
        f"{prefix}attention.in_proj_weight": (3 * width, width),
        f"{prefix}attention.in_proj_bias": (3 * width,),
        **_linear(f"{prefix}attention.out_proj", width, width),
        **_norm(f"{prefix}layernorm", width),
        **_linear(f"{prefix}mlp.fc1", width, config.vision_mlp_width),
        **_linear(f"{prefix}mlp.fc2", config.vision_mlp_width, width),
    }


def numel(shapes: Mapping[str, tuple[int, ...]], prefix: str = "") -> int:
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefix))


def _vision(config: GrootConfig, patch: int) -> Shapes:
    width = config.vision_width
    shapes: Shapes = {
        f"{VISION}embeddings.patch_embedding.weight": (width, 3, patch, patch),
        f"{VISION}embeddings.patch_embedding.bias": (width,),
        f"{VISION}embeddings.position_embedding.weight": (
            (config.image_size // patch) ** 2,
            width,
        ),
        **_norm(f"{VISION}post_layernorm", width),
    }
    for layer in range(config.vision_depth):
        prefix = f"{VISION}encoder.layers.{layer}."
        shapes |= _norm(f"{prefix}layer_norm1", width) | _norm(f"{prefix}layer_norm2", width)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _linear(f"{prefix}self_attn.{name}", width, width)
        shapes |= _linear(f"{prefix}mlp.fc1", width, config.vision_mlp_width)
        shapes |= _linear(f"{prefix}mlp.fc2", config.vision_mlp_width, width)
    return shapes


def _block(prefix: str, width: int, keys: int) -> Shapes:
    return {
        **_linear(f"{prefix}attn1.to_q", width, width),
        **_linear(f"{prefix}attn1.to_k", keys, width),
        **_linear(f"{prefix}attn1.to_v", keys, width),
        **_linear(f"{prefix}attn1.to_out.0", width, width),
        **_linear(f"{prefix}ff.net.0.proj", width, 4 * width),
        **_linear(f"{prefix}ff.net.2", 4 * width, width),
    }


def _linear(name: str, width_in: int, width_out: int) -> Shapes:
    return {f"{name}.weight": (width_out, width_in), f"{name}.bias": (width_out,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


class PublishedGroot:
    """The published network on one observation."""

    def __init__(self, tensors: Mapping[str, Tensor], config: GrootConfig) -> None:
        self.tensors, self.config = tensors, config

    def velocity(
        self,
        pictures: Tensor,
        ids: Tensor,
        is_picture: Tensor,
        state: Tensor,
        noised: Tensor,
        time: float,
        slot: int,
    ) -> Tensor:
        """[I, 3, h, w] from -1 to 1, [L], bool [L], [1, Ds], [A, Da], 0 (noise) to 1 -> [A, Da]."""
        config = self.config
        seen = self._apply(f"{EAGLE}mlp1.0", self._siglip(pictures)).flatten(0, 1)
        x = self.tensors[EMBED][ids].clone()
        x[is_picture] = seen
        features = self._layer_norm(f"{ACTION}vlln", self._qwen(x))
        for layer in range(config.adapter_layers):
            prefix = f"{ACTION}vl_self_attention.transformer_blocks.{layer}."
            h = self._layer_norm(f"{prefix}norm1", features)
            features = features + self._attend(prefix, h, h, config.adapter_heads)
            features = features + self._mlp(prefix, self._layer_norm(f"{prefix}norm3", features))
        bucket = int(time * config.time_buckets)
        x = torch.cat(
            (
                self._category_mlp("state_encoder", state, slot),
                self.tensors[f"{ACTION}future_tokens.weight"],
                self._encode_actions(noised, bucket, slot)
                + self.tensors[f"{ACTION}position_embedding.weight"][: len(noised)],
            )
        )
        condition = F.silu(self._time(bucket))
        for layer in range(config.dit_layers):
            prefix = f"{ACTION}model.transformer_blocks.{layer}."
            scale, shift = self._apply(f"{prefix}norm1.linear", condition).chunk(2)
            h = F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
            x = x + self._attend(prefix, h, h if layer % 2 else features, config.dit_heads)
            x = x + self._mlp(prefix, F.layer_norm(x, x.shape[-1:]))
        shift, scale = self._apply(f"{ACTION}model.proj_out_1", condition).chunk(2)
        x = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
        out = self._apply(f"{ACTION}model.proj_out_2", x)
        return self._category_mlp("action_decoder", out, slot)[-len(noised) :]

    def _siglip(self, pictures: Tensor) -> Tensor:
        config = self.config
        weight = self.tensors[f"{VISION}embeddings.patch_embedding.weight"]
        bias = self.tensors[f"{VISION}embeddings.patch_embedding.bias"]
        x = F.conv2d(pictures, weight, bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)
        x = x + self.tensors[f"{VISION}embeddings.position_embedding.weight"]
        for layer in range(config.vision_depth):
            prefix = f"{VISION}encoder.layers.{layer}."
            h = self._layer_norm(f"{prefix}layer_norm1", x, 1e-6)
            q, k, v = (
                _heads(self._apply(f"{prefix}self_attn.{name}_proj", h), config.vision_heads)
                for name in "qkv"
            )
            scores = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
            attended = (scores @ v).transpose(1, 2).flatten(2)
            x = x + self._apply(f"{prefix}self_attn.out_proj", attended)
            h = self._apply(f"{prefix}mlp.fc1", self._layer_norm(f"{prefix}layer_norm2", x, 1e-6))
            x = x + self._apply(f"{prefix}mlp.fc2", F.gelu(h, approximate="tanh"))
        return self._layer_norm(f"{VISION}post_layernorm", x, 1e-6)

    def _qwen(self, x: Tensor) -> Tensor:
        config = self.config
        mask = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        counts = (config.heads, config.kv_heads, config.kv_heads)
        for layer in range(config.layers):
            prefix = f"{LANGUAGE}layers.{layer}."
            h = self._rms(f"{prefix}input_layernorm", x)
            q, k, v = (
                _heads(h @ self.tensors[f"{prefix}self_attn.{name}_proj.weight"].T, heads)
                for name, heads in zip("qkv", counts, strict=True)
            )
            q = _rotate(self._rms(f"{prefix}self_attn.q_norm", q))
            k = _rotate(self._rms(f"{prefix}self_attn.k_norm", k))
            groups = config.heads // config.kv_heads
            k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
            scores = (q @ k.mT / math.sqrt(config.head_dim)).masked_fill(~mask, -math.inf)
            attended = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
            x = x + attended @ self.tensors[f"{prefix}self_attn.o_proj.weight"].T
            h = self._rms(f"{prefix}post_attention_layernorm", x)
            gate = F.silu(h @ self.tensors[f"{prefix}mlp.gate_proj.weight"].T)
            up = h @ self.tensors[f"{prefix}mlp.up_proj.weight"].T
            x = x + (gate * up) @ self.tensors[f"{prefix}mlp.down_proj.weight"].T
        return self._rms(f"{LANGUAGE}norm", x)

    def _encode_actions(self, noised: Tensor, bucket: int, slot: int) -> Tensor:
        half = self.config.dit_width // 2
        frequencies = torch.exp(-torch.arange(half) * (math.log(10000.0) / half))
        angles = bucket * frequencies
        time = torch.cat((angles.sin(), angles.cos())).expand(len(noised), -1)
        embedded = self._category("action_encoder.W1", noised, slot)
        both = torch.cat((embedded, time), dim=1)
        h = F.silu(self._category("action_encoder.W2", both, slot))
        return self._category("action_encoder.W3", h, slot)

    def _time(self, bucket: int) -> Tensor:
        angles = bucket * torch.exp(-torch.arange(128) * (math.log(10000.0) / 127))
        prefix = f"{ACTION}model.timestep_encoder.timestep_embedder."
        h = F.silu(self._apply(f"{prefix}linear_1", torch.cat((angles.cos(), angles.sin()))))
        return self._apply(f"{prefix}linear_2", h)

    def _attend(self, prefix: str, h: Tensor, keys: Tensor, heads: int) -> Tensor:
        q, k, v = (
            _heads(self._apply(f"{prefix}attn1.to_{name}", source), heads)
            for name, source in (("q", h), ("k", keys), ("v", keys))
        )
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self._apply(f"{prefix}attn1.to_out.0", (scores @ v).transpose(0, 1).flatten(1))

    def _mlp(self, prefix: str, h: Tensor) -> Tensor:
        h = F.gelu(self._apply(f"{prefix}ff.net.0.proj", h), approximate="tanh")
        return self._apply(f"{prefix}ff.net.2", h)

    def _category_mlp(self, name: str, x: Tensor, slot: int) -> Tensor:
        h = F.relu(self._category(f"{name}.layer1", x, slot))
        return self._category(f"{name}.layer2", h, slot)

    def _category(self, name: str, x: Tensor, slot: int) -> Tensor:
        weight, bias = (self.tensors[f"{ACTION}{name}.{kind}"][slot] for kind in "Wb")
        return x @ weight + bias

    def _apply(self, name: str, x: Tensor) -> Tensor:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _layer_norm(self, name: str, x: Tensor, eps: float = 1e-5) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    def _rms(self, name: str, x: Tensor) -> Tensor:
        normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return normed * self.tensors[f"{name}.weight"]


def _heads(x: Tensor, heads: int) -> Tensor:
    """[..., L, heads * D] -> [..., heads, L, D]."""
    return x.reshape(*x.shape[:-1], heads, -1).transpose(-3, -2)


def _rotate(x: Tensor) -> Tensor:
    """[heads, L, D] at positions 0 to L - 1."""
    length, dim = x.shape[1:]
    frequencies = 1.0 / 1e6 ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.arange(length)[:, None] * frequencies
    cos, sin = (torch.cat((t, t), dim=-1) for t in (angles.cos(), angles.sin()))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
