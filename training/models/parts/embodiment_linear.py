"""A linear layer for each embodiment."""

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn


class EmbodimentLinear(nn.Module):
    """A linear layer with weights and bias of its own for each embodiment.

    Rows of all embodiments go through one matrix product (their inputs in disjoint blocks), so
    each parameter gets a gradient in every batch and the device is never asked which are present.
    """

    def __init__(self, embodiments: int, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(embodiments, width_in, width_out))
        self.bias = nn.Parameter(torch.zeros(embodiments, width_out))
        nn.init.normal_(self.weight, std=max(width_in, 1) ** -0.5)

    def forward(self, x: Tensor, embodiment_ids: Tensor) -> Tensor:
        """[R, width_in] and [R] int64 -> [R, width_out]."""
        count, width_in, width_out = self.weight.shape
        if count == 1:
            return x @ self.weight[0] + self.bias[0]
        mine = F.one_hot(embodiment_ids, count).to(x.dtype)
        blocks = (mine[:, :, None] * x[:, None, :]).reshape(len(x), count * width_in)
        # Looked up, not multiplied: under autocast the sum stays float32, as with one embodiment.
        product = blocks @ self.weight.reshape(count * width_in, width_out)
        return product + F.embedding(embodiment_ids, self.bias)
