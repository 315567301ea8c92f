"""Loss curves of the same training, packed, padded, and packed with FP8's rounding.

All have the same weights to begin with, the same spans, noise and optimizer.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from loader.batch import PackedBatch
from tools.bench.training_packs import Packs
from training.loss import flow_matching_loss
from training.models.policy_model import PolicyModel
from training.padded import padded_batches
from training.precision.choose import choose_fp8
from training.precision.config import PrecisionConfig
from training.precision.convert import convert_linears

_Parts = Callable[[PackedBatch[Tensor]], Sequence[PackedBatch[Tensor]]]

_LEARNING_RATE = 1e-3
_WARM_UP_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class LossCurves:
    """Mean loss of each optimizer step.

    Attributes:
        packed: a step is one pack.
        padded: the spans of the same pack, in padded batches whose gradients are summed.
        fp8: packs again, with the blocks' linear layers rounding as FP8 does.
    """

    packed: Sequence[float]
    padded: Sequence[float]
    fp8: Sequence[float]

    @property
    def largest_gap(self) -> float:
        """Largest difference of the two at a step, over the packed loss there."""
        pairs = zip(self.packed, self.padded, strict=True)
        return max(abs(one - other) / one for one, other in pairs)

    @property
    def fp8_gap(self) -> float:
        """Difference of the mean losses with and without FP8 in the last quarter, over the one."""
        last = -(-len(self.packed) // 4)
        packed, fp8 = sum(self.packed[-last:]), sum(self.fp8[-last:])
        return abs(fp8 - packed) / packed


def train_alike(
    model: PolicyModel, packs: Packs, *, steps: int, batch_size: int, device: torch.device
) -> LossCurves:
    """Train copies of a model.

    Args:
        model: its weights are where both begin; they are not changed.
        packs: passed over again and again; every pass is an epoch with noise of its own.
        steps: of the optimizer.
        batch_size: of padded batches.
        device: where to train.
    """

    def curve(parts: _Parts = lambda batch: [batch], *, fp8: bool = False) -> list[float]:
        trained = copy.deepcopy(model).to(device)
        if fp8:
            convert_linears(trained, choose_fp8(PrecisionConfig(fp8="emulate"), device))
        return _train(trained, packs, parts, steps=steps, device=device)

    return LossCurves(
        packed=curve(),
        padded=curve(lambda batch: list(padded_batches(batch, batch_size))),
        fp8=curve(fp8=True),
    )


def _train(
    model: PolicyModel,
    packs: Packs,
    parts: _Parts,
    *,
    steps: int,
    device: torch.device,
) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    losses = []
    for step in range(steps):
        epoch, nth = divmod(step, len(packs.packed))
        batch = packs.packed[nth]
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * min(1.0, (step + 1) / _WARM_UP_STEPS)
        optimizer.zero_grad()
        total = 0.0
        for part in parts(replace(batch, epoch=epoch)):
            there = part.to(device)
            loss = flow_matching_loss(model(there), there) / batch.num_action_items
            torch.autograd.backward(loss)
            total += float(loss.detach())
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    return losses
