"""Normalisation on the device, with the statistics that are frozen in the plan."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from training.policy_spec import Moments

# A dimension that hardly moves (an unused joint) is centred, not blown up.
_LEAST_STD = 1e-6


class Normaliser(nn.Module):
    """(x - mean) / std for each row's own statistics; padded dimensions stay 0.

    Args:
        moments: of each `stats_id`.
        dim: width of the rows, at least the longest moments.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, moments: tuple[Moments, ...], dim: int) -> None:
        super().__init__()
        mean, std = torch.zeros(len(moments), dim), torch.ones(len(moments), dim)
        for row, one in enumerate(moments):
            mean[row, : len(one.mean)] = torch.tensor(one.mean, dtype=torch.float64).float()
            std[row, : len(one.std)] = torch.tensor(one.std, dtype=torch.float64).float()
        std[std < _LEAST_STD] = 1.0
        # They are saved as JSON with every checkpoint, in full precision.
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def forward(self, x: Tensor, stats_ids: Tensor) -> Tensor:
        """[R, dim] in the recorded unit and [R] int64 -> [R, dim] float32."""
        return (x - self.mean[stats_ids]) / self.std[stats_ids]

    def inverse(self, x: Tensor, stats_ids: Tensor) -> Tensor:
        """[R, dim] normalised -> the recorded unit."""
        return x * self.std[stats_ids] + self.mean[stats_ids]


def by_quantiles(moments: tuple[Moments, ...]) -> tuple[Moments, ...]:
    """Moments that normalise the 1 % quantile to -1 and the 99 % quantile to 1."""
    return tuple(
        replace(
            one,
            mean=tuple((low + high) / 2 for low, high in zip(one.q01, one.q99, strict=True)),
            std=tuple((high - low) / 2 for low, high in zip(one.q01, one.q99, strict=True)),
        )
        for one in moments
    )
