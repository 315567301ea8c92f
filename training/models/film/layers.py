"""Building blocks of the policy: trunk and action-expert layers.

Shape suffixes as in `training.attention`; W trunk width, We expert width.
"""

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from training.attention.segments import Segments
from training.attention.varlen import varlen_attention
from training.models.film.config import FilmConfig
from training.models.parts.rotary import Rotary


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, hidden: int, out: int | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, out or width)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., out]."""
        down: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return down


class TrunkLayer(nn.Module):
    """Pre-norm transformer layer with attention inside each segment.

    The last layer of a trunk (`keys_only`) makes keys and values and nothing else: the action
    expert reads no other output of it, so nothing else is computed.
    """

    def __init__(self, config: FilmConfig, *, keys_only: bool = False) -> None:
        super().__init__()
        self.heads, self.keys_only = config.heads, keys_only
        inner = config.heads * config.head_dim
        self.norm_1 = nn.RMSNorm(config.width, eps=1e-6)
        self.qkv = nn.Linear(config.width, (2 if keys_only else 3) * inner, bias=False)
        if not keys_only:
            self.out = nn.Linear(inner, config.width, bias=False)
            self.norm_2 = nn.RMSNorm(config.width, eps=1e-6)
            self.mlp = Mlp(config.width, config.mlp_ratio * config.width)

    def forward(
        self, x: Tensor, rotary: Rotary, segments: Segments
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[T, W] -> (tokens [T, W], keys [T, H, D], values [T, H, D])."""
        parts = self.qkv(self.norm_1(x)).unflatten(-1, (-1, self.heads, rotary.cos.shape[-1] * 2))
        *queries, k, v = parts.unbind(dim=1)
        # Copied: FSDP takes no views from a block.
        k, v = rotary.rotate(k), v.contiguous()
        if self.keys_only:
            return x, k, v
        attended = varlen_attention(rotary.rotate(queries[0]), k, v, segments)
        x = x + self.out(attended.flatten(1))
        return x + self.mlp(self.norm_2(x)), k, v


class ExpertLayer(nn.Module):
    """Layer of the action expert: an action attends to its span's prefix and earlier actions.

    Norms are modulated and the branches gated by the flow time (adaptive norm as in pi0.5,
    arXiv:2504.16054, and DiT, arXiv:2212.09748).
    """

    def __init__(self, config: FilmConfig) -> None:
        super().__init__()
        self.heads = config.heads
        width, inner = config.expert_width, config.heads * config.head_dim
        self.norm_1 = nn.RMSNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm_2 = nn.RMSNorm(width, eps=1e-6, elementwise_affine=False)
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv = nn.Linear(width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.mlp = Mlp(width, config.mlp_ratio * width)
        # At the start the layer is a plain pre-norm layer: scale 1, shift 0, gate 1.
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(
        self,
        x: Tensor,
        condition: Tensor,
        rotary: Rotary,
        prefix_kv: tuple[Tensor, Tensor],
        kv_index: Tensor,
        segments: Segments,
    ) -> Tensor:
        """One layer.

        Args:
            x: [Q, We] action tokens.
            condition: [Q, We] embedded flow time of each query.
            rotary: positions of the queries.
            prefix_kv: keys and values [T, H, D] of the same layer of the trunk.
            kv_index: gathers [prefix tokens; action queries] into the key segments.
            segments: queries to gathered keys.
        """
        scale_1, shift_1, gate_1, scale_2, shift_2, gate_2 = self.modulation(condition).chunk(6, -1)
        h = self.norm_1(x) * (1.0 + scale_1) + shift_1
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, rotary.cos.shape[-1] * 2)).unbind(dim=1)
        keys = torch.cat((prefix_kv[0], rotary.rotate(k))).index_select(0, kv_index)
        values = torch.cat((prefix_kv[1], v)).index_select(0, kv_index)
        attended = varlen_attention(rotary.rotate(q), keys, values, segments)
        x = x + (1.0 + gate_1) * self.out(attended.flatten(1))
        h = self.norm_2(x) * (1.0 + scale_2) + shift_2
        modulated: Tensor = x + (1.0 + gate_2) * self.mlp(h)
        return modulated
