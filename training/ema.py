"""Exponential moving average of the weights, for rollouts."""

import torch
from torch import Tensor, nn


class Ema:
    """Averaged copies of a model's parameters; element-wise, so shards average alone.

    The decay warms up as (1 + n) / (10 + n), n updates so far, so that a short run is not an
    average of its random start.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = torch.zeros((), dtype=torch.int64)
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the averages towards the model's weights."""
        self.updates += 1
        count = int(self.updates)
        decay = min(self.decay, (1 + count) / (10 + count))
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter, 1.0 - decay)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages and the number of updates; tensors are shared, not copied."""
        return {"updates": self.updates, **self.weights}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Inverse of `state_dict`."""
        self.updates = state["updates"].clone()
        self.weights = {name: state[name].clone() for name in self.weights}
