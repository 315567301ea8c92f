"""Layers of GR00T's action head, and of the adapter before it.

Facts of github.com/NVIDIA/Isaac-GR00T, release n1.5
(`gr00t/model/action_head/cross_attention_dit.py`), which are those of diffusers' `Attention` and
`FeedForward`: biases everywhere, the MLP four times as wide, GELU in its tanh form.

Letters as in `training.models.gr00t.sequence`; W width.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from training.attention.segments import Segments
from training.attention.varlen import varlen_attention
from training.models.gr00t.sequence import HeadTokens
from training.models.parts.embodiment_groups import EmbodimentGroups, GroupedLinear
from training.models.parts.norms import Condition

_MLP_RATIO = 4
_EPS = 1e-5
# Longest wavelength of both kinds of sinusoids over 2 pi, in buckets.
_LONGEST = 10000.0
_TIME_FEATURES = 256


class FeedForward(nn.Module):
    """down(gelu(up x)) with biases."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, _MLP_RATIO * width)
        self.down = nn.Linear(_MLP_RATIO * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[..., W] -> [..., W]."""
        down: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return down


class AdaptiveLayerNorm(nn.Module):
    """LayerNorm without weights, then scale and shift from a condition (AdaLN).

    Fresh weights scale by 1 and shift by 0 (published ones began as any linear layer).

    Args:
        width: W, also of the condition.
        eps: of the norm.
        shift_first: order of the two in the projection.
    """

    def __init__(self, width: int, *, eps: float = _EPS, shift_first: bool = False) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2 * width)
        self.eps, self.shift_first = eps, shift_first
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, x: Tensor, condition: Condition) -> Tensor:
        """[H, W] -> [H, W]."""
        # The product once a span; only its result is laid out for each token.
        modulation: Tensor = self.dense(condition.rows)
        first, second = modulation.index_select(0, condition.of).chunk(2, dim=-1)
        scale, shift = (second, first) if self.shift_first else (first, second)
        normed = F.layer_norm(x.float(), x.shape[-1:], eps=self.eps)
        return (normed * (1.0 + scale.float()) + shift.float()).to(x.dtype)


class AdapterLayer(nn.Module):
    """Pre-norm layer: observations of a span attend to each other, in both directions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, eps=_EPS)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = FeedForward(width)

    def forward(self, x: Tensor, segments: Segments) -> Tensor:
        """[V, W] -> [V, W]."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).unbind(dim=1)
        x = x + self.out(varlen_attention(q, k, v, segments).flatten(1))
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class DitLayer(nn.Module):
    """Layer of the action head: attention after an adaptive norm, then an MLP after a plain one.

    Args:
        width: W.
        heads: attention heads.
        own: attend to the head's own tokens; else to keys and values of the observations.
    """

    def __init__(self, width: int, heads: int, *, own: bool) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.norm_1 = AdaptiveLayerNorm(width)
        self.project = nn.Linear(width, (3 if own else 1) * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width, eps=_EPS, elementwise_affine=False)
        self.mlp = FeedForward(width)

    def forward(
        self, x: Tensor, condition: Condition, tokens: HeadTokens, observed: Tensor | None
    ) -> Tensor:
        """One layer.

        Args:
            x: [H, W].
            condition: of the adaptive norm.
            tokens: which tokens see which.
            observed: [V, 2 W] keys and values of the observations; None in a layer that attends to
                the head's own tokens.
        """
        projected = self.project(self.norm_1(x, condition)).unflatten(
            -1, (-1, self.heads, self.head_dim)
        )
        if observed is None:
            q, k, v = projected.unbind(dim=1)
            attended = tokens.attend(q, k, v)
        else:
            k, v = observed.reshape(len(observed), 2, self.heads, self.head_dim).unbind(dim=1)
            attended = varlen_attention(projected[:, 0], k, v, tokens.cross)
        x = x + self.out(attended.flatten(1))
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class TimeEmbedding(nn.Module):
    """Bucket of the flow time to a condition: 256 cosines and sines, then two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(_TIME_FEATURES, width)
        self.linear_2 = nn.Linear(width, width)

    def forward(self, buckets: Tensor) -> Tensor:
        """[N] float32 -> [N, W]."""
        half = _TIME_FEATURES // 2
        sines, cosines = _waves(buckets, half, half - 1)
        waves = torch.cat((cosines, sines), dim=1)
        embedded: Tensor = self.linear_2(
            F.silu(self.linear_1(waves.to(self.linear_1.weight.dtype)))
        )
        return embedded


class ActionEncoder(nn.Module):
    """Noised actions and the time of their span to tokens, with layers for each embodiment.

    Args:
        embodiments: E.
        action_dim: features of an action.
        width: W.
    """

    def __init__(self, embodiments: int, action_dim: int, width: int) -> None:
        super().__init__()
        self.layer_1 = GroupedLinear(embodiments, action_dim, width)
        self.layer_2 = GroupedLinear(embodiments, 2 * width, width)
        self.layer_3 = GroupedLinear(embodiments, width, width)

    def forward(
        self, actions: Tensor, buckets: Tensor, of: Tensor, groups: EmbodimentGroups
    ) -> Tensor:
        """One token for each action.

        Args:
            actions: [Q, action_dim].
            buckets: [N] float32 of the flow time.
            of: [Q] int64, row in [N] of each action.
            groups: the actions by their embodiments.
        """
        order = groups.order
        embedded = self.layer_1(actions.index_select(0, order), groups)
        width = embedded.shape[1]
        time = torch.cat(_waves(buckets, width // 2, width // 2), dim=1).to(embedded.dtype)
        both = torch.cat((embedded, time.index_select(0, of[order])), dim=1)
        tokens: Tensor = self.layer_3(F.silu(self.layer_2(both, groups)), groups)
        return tokens.index_select(0, groups.restore)


def _waves(buckets: Tensor, count: int, spread: int) -> tuple[Tensor, Tensor]:
    """Sines and cosines, each [N, count], of wavelengths up to `_LONGEST ** (count / spread)`."""
    steps = torch.arange(count, device=buckets.device, dtype=torch.float32)
    angles = buckets[:, None] * torch.exp(-math.log(_LONGEST) / max(spread, 1) * steps)
    return angles.sin(), angles.cos()
