"""What a step did, over all its packs and ranks: figures that say where its time went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from loader.batch import PackedBatch
from packing.plan_header import PlanHeader
from training.logs.metrics import StepMetrics, peak_flops
from training.loss import gather_over_ranks
from training.models.policy_model import PolicyModel
from training.padded import padded_tokens


class Sums(NamedTuple):
    """What one rank adds to a step's totals, and the totals."""

    loss: float
    action_values: float
    tokens: float
    padded_tokens: float
    spans: float
    bad_spans: float
    flops: float
    wait_s: float
    compute_s: float
    terminated: float


@dataclass(frozen=True)
class StepTotals:
    """A step's totals.

    Attributes:
        sums: over all ranks.
        wait_s, compute_s: of each rank: waiting for data; forward and backward, with what of the
            exchange of gradients is not hidden behind them.
    """

    sums: Sums
    wait_s: tuple[float, ...]
    compute_s: tuple[float, ...]


def step_totals(
    model: nn.Module,
    packs: Sequence[PackedBatch[Tensor]],
    padded: Sequence[PackedBatch[Tensor]],
    losses: Sequence[float],
    device: torch.device,
    *,
    wait_s: float,
    compute_s: float,
    terminated: bool,
) -> StepTotals:
    """What this rank did in a step, put together with what the others did; every rank calls this.

    Args:
        model: not wrapped.
        packs: of this rank and step.
        padded: what was computed in their place, where they were padded.
        losses: sum of each.
        device: of this rank.
        wait_s: waited for the packs.
        compute_s: forward and backward.
        terminated: whether this rank was asked to stop.
    """
    mine = Sums(
        loss=sum(losses),
        action_values=sum(pack.num_action_items for pack in packs),
        tokens=sum(pack.num_tokens + len(pack.actions) for pack in packs),
        padded_tokens=sum(padded_tokens(pack) for pack in padded),
        spans=sum(pack.num_spans for pack in packs),
        bad_spans=sum(pack.num_spans - int(pack.sample_weights.count_nonzero()) for pack in packs),
        # A model of the user's own has no estimate, and no MFU. The backward pass costs twice the
        # forward pass.
        flops=3 * sum(model.forward_flops(pack) for pack in packs)
        if isinstance(model, PolicyModel)
        else 0.0,
        wait_s=wait_s,
        compute_s=compute_s,
        terminated=float(terminated),
    )
    ranks = [Sums(*each) for each in gather_over_ranks(mine, device)]
    return StepTotals(
        sums=Sums(*(sum(column) for column in zip(*ranks, strict=True))),
        wait_s=tuple(rank.wait_s for rank in ranks),
        compute_s=tuple(rank.compute_s for rank in ranks),
    )


def step_metrics(
    totals: StepTotals,
    header: PlanHeader,
    device: torch.device,
    *,
    step: int,
    epoch: int,
    lr: float,
    grad_norm: float,
    step_s: float,
) -> StepMetrics:
    """The figures of a step whose update is done."""
    sums, world_size = totals.sums, len(totals.wait_s)
    busy = [wait + compute for wait, compute in zip(totals.wait_s, totals.compute_s, strict=True)]
    peak = peak_flops(device)
    return StepMetrics(
        step=step,
        epoch=epoch,
        loss=sums.loss / max(sums.action_values, 1),
        lr=lr,
        grad_norm=grad_norm,
        action_values=int(sums.action_values),
        tokens=int(sums.tokens),
        spans=int(sums.spans),
        bad_spans=int(sums.bad_spans),
        padding_share=1.0
        - sums.tokens / (sums.padded_tokens or header.budget_tokens * header.slots_per_step),
        step_s=step_s,
        data_wait_share=sums.wait_s / world_size / step_s,
        tokens_per_s=sums.tokens / step_s,
        spans_per_s=sums.spans / step_s,
        mfu=sums.flops / step_s / (peak * world_size) if peak and sums.flops else None,
        rank_wait_s=totals.wait_s,
        rank_compute_s=totals.compute_s,
        rank_sync_s=tuple(max(busy) - each for each in busy),
    )
