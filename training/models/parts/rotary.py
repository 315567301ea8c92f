"""Rotary positions of tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotary:
    """Cosines and sines [T, 1, D/2] of the positions of tokens (RoPE, arXiv:2104.09864)."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, positions: Tensor, head_dim: int, *, base: float = 10000.0) -> "Rotary":
        """Tables for `positions` [T] int64.

        Args:
            positions: of the tokens in their span.
            head_dim: D, even.
            base: the longest wavelength over 2 pi.
        """
        half = torch.arange(head_dim // 2, device=positions.device, dtype=torch.float32)
        frequencies = base ** (-half / (head_dim // 2))
        angles = positions.to(torch.float32)[:, None, None] * frequencies
        return cls(cos=angles.cos(), sin=angles.sin())

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate [T, H, D]."""
        first, second = x.chunk(2, dim=-1)
        rotated = torch.cat(
            (first * self.cos - second * self.sin, second * self.cos + first * self.sin), dim=-1
        )
        return rotated.to(x.dtype)  # under autocast x is bfloat16, the tables are not
