"""What training changes, and the one way it changes."""

from dataclasses import dataclass
from typing import Self

from torch import nn
from torch.optim import AdamW, Optimizer

from training.config import OptimizerConfig, TrainConfig
from training.ema import Ema
from training.models.kinds import ModelConfig
from training.policy_spec import PolicySpec


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A model with all that its training remembers.

    Attributes:
        model: not wrapped for data parallelism.
        config: sizes it was made with.
        spec: what the plan decides of it.
        optimizer: over its parameters.
        ema: averaged weights, where they are kept.
    """

    model: nn.Module
    config: ModelConfig
    spec: PolicySpec
    optimizer: Optimizer
    ema: Ema | None

    @classmethod
    def start(cls, model: nn.Module, spec: PolicySpec, config: TrainConfig) -> Self:
        """Before the first step."""
        decay = config.optimizer.ema_decay
        return cls(
            model=model,
            config=config.model,
            spec=spec,
            optimizer=_adamw(model, config.optimizer),
            ema=Ema(model, decay) if decay else None,
        )

    def update(self, lr: float) -> None:
        """One optimizer step with the gradients that are there, which are cleared."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(self.model)


def _adamw(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """AdamW (arXiv:1711.05101): weights of products decay, norms and biases do not.

    A bias is told by its name: one for each embodiment has two dimensions.
    """
    decays: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_product = parameter.ndim >= 2 and not name.endswith("bias")
            (decays if is_product else others).append(parameter)
    groups = [
        {"params": decays, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
