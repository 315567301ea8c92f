"""Flow time as sines and cosines."""

import torch
from torch import Tensor


def sinusoids(time: Tensor, width: int) -> Tensor:
    """[N] in [0, 1] -> [N, width], periods from 4e-3 to 4 as in pi0."""
    half = torch.arange(width // 2, device=time.device, dtype=torch.float32)
    periods = 4e-3 * 1000.0 ** (half / max(width // 2 - 1, 1))
    angles = 2.0 * torch.pi * time[:, None] / periods
    return torch.cat((angles.sin(), angles.cos()), dim=1)
