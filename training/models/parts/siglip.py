"""SigLIP's vision transformer: pictures to one token for each patch.

arXiv:2303.15343; sizes and layers of So400m/14 as in big_vision, from which openpi has them
(`src/openpi/models/siglip.py`): patches, learned positions, pre-norm layers, a last norm.

Letters: I pictures, P patches of a picture, V width.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from packing.layout import TokenLayout
from training.errors import ConfigError

_EPS = 1e-6


@dataclass(frozen=True, kw_only=True)
class VisionSizes:
    """Sizes of a vision transformer.

    Attributes:
        image_size: height and width of the pictures it sees, in pixels.
        patch: height and width of a patch, a divisor of `image_size`.
        width: V, features of a patch token.
        depth: layers.
        heads: attention heads, a divisor of `width`.
        mlp_width: hidden features of a layer's MLP.
    """

    image_size: int = 224
    patch: int = 14
    width: int = 1152
    depth: int = 27
    heads: int = 16
    mlp_width: int = 4304

    @property
    def patches(self) -> int:
        """P."""
        return (self.image_size // self.patch) ** 2


class VisionConfig(Protocol):
    """What the configuration of a policy says of its vision tower."""

    @property
    def image_size(self) -> int:
        """Height and width of the pictures, in pixels."""

    @property
    def vision_width(self) -> int:
        """V."""

    @property
    def vision_depth(self) -> int:
        """Layers."""

    @property
    def vision_heads(self) -> int:
        """Attention heads."""

    @property
    def vision_mlp_width(self) -> int:
        """Hidden features of a layer's MLP."""


def vision_sizes(config: VisionConfig, layout: TokenLayout) -> VisionSizes:
    """Sizes of a tower that gives as many tokens as a layout counts for a picture.

    Raises:
        ConfigError: they are no square grid of patches.
    """
    tokens = layout.image_tokens
    side = math.isqrt(tokens)
    if side * side != tokens or config.image_size % side:
        raise ConfigError(
            f"the plan's layout {layout.name} has {tokens} tokens for a picture; they must be a"
            f" square grid of patches that divides model.image_size={config.image_size}"
        )
    return VisionSizes(
        image_size=config.image_size,
        patch=config.image_size // side,
        width=config.vision_width,
        depth=config.vision_depth,
        heads=config.vision_heads,
        mlp_width=config.vision_mlp_width,
    )


class VisionLayer(nn.Module):
    """Pre-norm layer: every patch attends to all patches of its picture."""

    def __init__(self, sizes: VisionSizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.norm_1 = nn.LayerNorm(width, eps=_EPS)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width, eps=_EPS)
        self.up = nn.Linear(width, sizes.mlp_width)
        self.down = nn.Linear(sizes.mlp_width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[I, P, V] -> [I, P, V]."""
        parts = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        q, k, v = parts.unbind(dim=2)  # each [I, H, P, D]
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        h: Tensor = self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return x + h


class VisionTower(nn.Module):
    """Pictures of one size to patch tokens."""

    def __init__(self, sizes: VisionSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.patches = nn.Conv2d(3, sizes.width, sizes.patch, stride=sizes.patch)
        self.position = nn.Parameter(sizes.width**-0.5 * torch.randn(sizes.patches, sizes.width))
        self.layers = nn.ModuleList(VisionLayer(sizes) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(sizes.width, eps=_EPS)

    def forward(self, images: Tensor) -> Tensor:
        """[I, 3, image_size, image_size] float from -1 to 1 -> [I, P, V]; I may be 0."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        for layer in self.layers:
            x = layer(x)
        tokens: Tensor = self.norm(x)
        return tokens

    def forward_flops(self, pictures: int) -> float:
        """Floating-point operations of so many pictures."""
        layer = self.layers[0]
        assert isinstance(layer, VisionLayer)
        sizes, patches = self.sizes, float(self.sizes.patches)
        linears = (layer.qkv, layer.out, layer.up, layer.down)
        each = 2 * sum(linear.weight.numel() for linear in linears) * patches
        attention = 4 * sizes.width * patches * patches
        return pictures * (
            2 * self.patches.weight.numel() * patches + sizes.depth * (each + attention)
        )
