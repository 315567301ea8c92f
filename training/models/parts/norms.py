"""Root-mean-square norms: learned, and adaptive to a condition."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

_EPS = 1e-6


class Condition(NamedTuple):
    """What modulates adaptive norms, one row for each span and not one for each token.

    Attributes:
        rows: [N, C] condition of each span.
        of: [Q] int64, the row of each token.
    """

    rows: Tensor
    of: Tensor


class RmsNorm(nn.Module):
    """x / rms(x) * (1 + weight), computed in float32 (RMSNorm, arXiv:1910.07467, as in Gemma)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        return _normed(x, 1.0 + self.weight.float()).to(x.dtype)


class AdaptiveRmsNorm(nn.Module):
    """x / rms(x) * (1 + scale) + shift, with scale, shift and a gate from a condition.

    The adaRMS of pi0.5 (arXiv:2504.16054); names and order as in openpi's `RMSNorm`
    (`src/openpi/models/gemma.py`). Fresh weights scale by 1, shift by 0 and gate by 1, so that a
    layer starts as a plain pre-norm layer (openpi starts with the gate at 0).
    """

    def __init__(self, width: int, condition_width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(condition_width, 3 * width)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)
        nn.init.ones_(self.dense.bias[2 * width :])

    def forward(self, x: Tensor, condition: Condition) -> tuple[Tensor, Tensor]:
        """[Q, width] -> (normed [Q, width], gate [Q, width])."""
        # The product once a span; only its result is laid out for each token.
        modulation: Tensor = self.dense(condition.rows)
        scale, shift, gate = modulation.index_select(0, condition.of).chunk(3, dim=-1)
        return (_normed(x, 1.0 + scale.float()) + shift.float()).to(x.dtype), gate


def _normed(x: Tensor, scale: Tensor) -> Tensor:
    return F.rms_norm(x.float(), x.shape[-1:], eps=_EPS) * scale
