"""The loss: a sum over action values, divided once per step by their number on all ranks.

A mean over each microbatch, averaged, would weight a value by how full its pack happens to be
(wrong by 46 % on unequal packs). So every microbatch adds a *sum* to the gradients, and the
gradients are scaled once, before clipping.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_

from loader.batch import PackedBatch


class Prediction(NamedTuple):
    """What a model says about the actions of a batch, in normalised units.

    Attributes:
        velocity: [Q, Da] predicted.
        target: [Q, Da] what it should be.
    """

    velocity: Tensor
    target: Tensor


class PackedModel(Protocol):
    """What the loop asks of a model."""

    def __call__(self, batch: PackedBatch[Tensor]) -> Prediction:
        """Predict; run every module, even on a batch without spans."""


class PackedLoss(Protocol):
    """What the loop asks of a loss."""

    def __call__(self, prediction: Prediction, batch: PackedBatch[Tensor]) -> Tensor:
        """Scalar *sum* over the batch's `num_action_items` action values."""


def counted_actions(batch: PackedBatch[Tensor]) -> Tensor:
    """[Q, Da] bool: the action values that `num_action_items` counts."""
    return batch.action_dim_mask & (batch.action_loss_weights > 0)[:, None]


def flow_matching_loss(prediction: Prediction, batch: PackedBatch[Tensor]) -> Tensor:
    """Sum of weighted squared velocity errors; 0, with a graph, for a batch without spans."""
    lengths = batch.cu_seqlens_action.diff().long()
    spans = torch.repeat_interleave(lengths, output_size=len(batch.actions))
    weights = batch.action_loss_weights * batch.sample_weights[spans]
    errors = (prediction.velocity - prediction.target).square() * weights[:, None]
    return errors.where(counted_actions(batch), 0.0).sum()


def scale_gradients(model: nn.Module, *, items: int, world_size: int) -> None:
    """Turn the gradients of a sum into those of the global mean.

    Args:
        model: its gradients were averaged over ranks (see `training.parallel`).
        items: action values of this step on all ranks.
        world_size: ranks.
    """
    scale = world_size / max(items, 1)
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(scale)


def clipped_norm(model: nn.Module, most: float) -> float:
    """Scale gradients down to a norm of `most`; what the norm was, over all ranks' shards."""
    norm = clip_grad_norm_(model.parameters(), most)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def sum_over_ranks(values: Sequence[float], device: torch.device) -> list[float]:
    """Sum each value over all ranks, in float64."""
    totals = torch.tensor(values, dtype=torch.float64, device=device)
    if dist.is_initialized():
        dist.all_reduce(totals)
    summed: list[float] = totals.tolist()
    return summed


def gather_over_ranks(values: Sequence[float], device: torch.device) -> list[list[float]]:
    """The values of every rank, in float64."""
    mine = torch.tensor(values, dtype=torch.float64, device=device)
    if not dist.is_initialized():
        return [mine.tolist()]
    every = mine.new_empty(dist.get_world_size(), len(values))
    dist.all_gather_into_tensor(every, mine[None])
    gathered: list[list[float]] = every.tolist()
    return gathered
