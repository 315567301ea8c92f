"""Pre-norm transformer layers as in Gemma: grouped-query attention and a gated MLP.

Shape suffixes as in `training.attention`: T tokens, S keys, H heads, Hk heads of keys and values,
D head size; W width, C width of a condition.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from training.attention.segments import Segments
from training.attention.varlen import varlen_attention
from training.models.parts.norms import AdaptiveRmsNorm, Condition, RmsNorm
from training.models.parts.rotary import Rotary

Activation = Literal["gelu", "silu"]


@dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """Sizes of a decoder layer.

    Attributes:
        width: W, features of a token.
        mlp_width: hidden features of the gated MLP.
        heads: H, query heads.
        kv_heads: Hk, heads of keys and values, a divisor of H.
        head_dim: D, features of a head, even.
        activation: of the MLP's gate: `gelu` (its tanh form) as in Gemma, `silu` as in Qwen.
        qk_norm: RMSNorm of every query and key head, as in Qwen3 (arXiv:2505.09388).
    """

    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    head_dim: int
    activation: Activation = "gelu"
    qk_norm: bool = False


class Context(NamedTuple):
    """Keys and values from elsewhere that a layer's queries see beside their own.

    Attributes:
        keys, values: [S, Hk, D], keys rotated already.
        gather: [S + T] int64, takes [these; the layer's own] into the key segments.
    """

    keys: Tensor
    values: Tensor
    gather: Tensor


class GatedMlp(nn.Module):
    """down(activation(gate x) * up x) without biases (GLU variants, arXiv:2002.05202)."""

    def __init__(self, width: int, hidden: int, *, activation: Activation = "gelu") -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        opened = F.gelu(gate, approximate="tanh") if self.activation == "gelu" else F.silu(gate)
        down: Tensor = self.down(opened * up)
        return down


class DecoderLayer(nn.Module):
    """Pre-norm layer: attention inside segments, then a gated MLP.

    Args:
        sizes: of the layer.
        condition_width: C; where it is given, the norms adapt to a condition and the branches are
            gated by it.
        keys_only: make keys and values and nothing else. The last layer of a trunk whose only
            readers are another stream's layers computes no more.
    """

    def __init__(
        self, sizes: DecoderSizes, *, condition_width: int | None = None, keys_only: bool = False
    ) -> None:
        super().__init__()
        self.sizes, self.keys_only = sizes, keys_only
        width, inner = sizes.width, sizes.heads * sizes.head_dim

        def norm() -> nn.Module:
            if condition_width is None:
                return RmsNorm(width)
            return AdaptiveRmsNorm(width, condition_width)

        heads = 2 * sizes.kv_heads + (0 if keys_only else sizes.heads)
        self.norm_1 = norm()
        self.qkv = nn.Linear(width, heads * sizes.head_dim, bias=False)
        self.norm_k = RmsNorm(sizes.head_dim) if sizes.qk_norm else None
        if not keys_only:
            self.norm_q = RmsNorm(sizes.head_dim) if sizes.qk_norm else None
            self.out = nn.Linear(inner, width, bias=False)
            self.norm_2 = norm()
            self.mlp = GatedMlp(width, sizes.mlp_width, activation=sizes.activation)

    def forward(
        self,
        x: Tensor,
        rotary: Rotary,
        segments: Segments,
        *,
        condition: Condition | None = None,
        context: Context | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One layer.

        Args:
            x: [T, W].
            rotary: positions of the tokens.
            segments: the tokens to their own keys or, with `context`, to the gathered ones.
            condition: of the adaptive norms, where the layer has them.
            context: further keys and values that the tokens see.

        Returns:
            Tokens [T, W], and the layer's own rotated keys and values, each [T, Hk, D].
        """
        h, gate = _norm(self.norm_1, x, condition)
        sizes = self.sizes
        heads = self.qkv(h).unflatten(-1, (-1, sizes.head_dim))
        q, k, v = heads.split((heads.shape[1] - 2 * sizes.kv_heads, *(2 * (sizes.kv_heads,))), 1)
        k = rotary.rotate(k if self.norm_k is None else self.norm_k(k))
        v = v.clone()  # FSDP takes no views from a block
        if self.keys_only:
            return x, k, v
        q = rotary.rotate(q if self.norm_q is None else self.norm_q(q))
        keys, values = k, v
        if context is not None:
            keys = torch.cat((context.keys, k)).index_select(0, context.gather)
            values = torch.cat((context.values, v)).index_select(0, context.gather)
        attended = varlen_attention(q, keys, values, segments)
        x = _add(x, self.out(attended.flatten(1)), gate)
        h, gate = _norm(self.norm_2, x, condition)
        return _add(x, self.mlp(h), gate), k, v


def _norm(norm: nn.Module, x: Tensor, condition: Condition | None) -> tuple[Tensor, Tensor | None]:
    if isinstance(norm, AdaptiveRmsNorm):
        assert condition is not None, "the layer's norms want a condition"
        normed, gate = norm(x, condition)
        return normed, gate
    return norm(x), None


def _add(x: Tensor, branch: Tensor, gate: Tensor | None) -> Tensor:
    return x + branch if gate is None else x + gate * branch
