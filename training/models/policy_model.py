"""What every policy is: a module on packed batches that the loop trains and a rollout asks."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from loader.batch import PackedBatch
from training.loss import Prediction
from training.policy_spec import PolicySpec


class PolicyModel(nn.Module, ABC):
    """Base of the policies here; the loop itself asks for no more than `training.loss.PackedModel`.

    Args:
        spec: what the plan decides.

    Attributes:
        spec: the same.
        blocks: names of the modules that repeat (the layers), by which a model is sharded,
            checkpointed and compiled.
    """

    blocks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.spec = spec

    @abstractmethod
    def forward(self, batch: PackedBatch[Tensor]) -> Prediction:
        """What the loss compares; runs every module, even on a batch without spans or pictures."""

    @abstractmethod
    def sample(self, batch: PackedBatch[Tensor]) -> Tensor:
        """Draw actions; the batch's own are not read, only their number.

        Returns:
            [Q, Da] float32 in the recorded unit.
        """

    @abstractmethod
    def forward_flops(self, batch: PackedBatch[Tensor]) -> float:
        """Floating-point operations of a forward pass, from the true lengths of its segments.

        Two per weight and token, and attention by the sum of query times key lengths over segments:
        the square of a configured length would overstate it. Reads lengths on the host.
        """
