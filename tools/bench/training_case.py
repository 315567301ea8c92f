"""One workload of the training bench: the same spans packed and padded, timed and compared."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from tools.bench.framework import Timing, interleave, spread
from tools.bench.training_packs import PACKED, Batches
from training.errors import TrainingError
from training.loss import flow_matching_loss
from training.models.policy_model import PolicyModel
from training.padded import padded_tokens

# Two orders above what rounding makes of sums in another order.
_MOST_DIFFERENCE: Final = 1e-4


class GradientsDifferError(TrainingError):
    """Contenders do not compute the same: their times cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of spans, packed and in the ways that trainers pad.

    Attributes:
        name: in the table.
        model: run by every contender, with these weights.
        contenders: batches of all spans for each contender, `packed` among them.
        tokens: real ones, in any of them.
    """

    name: str
    model: PolicyModel
    contenders: Mapping[str, Batches]
    tokens: int

    def padding_factor(self, contender: str) -> float:
        """Tokens that a contender computes over real ones."""
        return sum(map(padded_tokens, self.contenders[contender])) / self.tokens


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a workload showed.

    Attributes:
        rows: of the table, one for each contender.
        seconds: median of a pass over all spans, CPU seconds on a CPU and else elapsed ones.
    """

    rows: list[dict[str, Any]]
    seconds: Mapping[str, float]

    def packed_over(self, contender: str) -> float:
        """How much faster packing is than a contender."""
        return self.seconds[contender] / self.seconds[PACKED]


def measure_case(case: Case, *, repetitions: int, device: torch.device) -> Measured:
    """Time forward and backward of all spans, contenders taking turns.

    Raises:
        GradientsDifferError: a contender's gradients are not those of the packs.
    """
    model = case.model.to(device)
    contenders = {
        name: [batch.to(device) for batch in batches] for name, batches in case.contenders.items()
    }
    # Comparing has run each contender once: no further warm-up.
    differences = _gradient_differences(case.name, model, contenders)
    timings = interleave(
        {name: partial(run_step, model, batches) for name, batches in contenders.items()},
        repetitions=repetitions,
        warm_up=False,
    )
    seconds = {name: statistics.median(seconds_of(each, device)) for name, each in timings.items()}
    rows = [
        {
            "workload": case.name,
            "contender": name,
            "padding factor": round(case.padding_factor(name), 3),
            "seconds": spread(seconds_of(each, device)),
            "tokens/s": round(case.tokens / seconds[name]),
            "packed is faster by": round(seconds[name] / seconds[PACKED], 3),
            "gradients differ by": f"{differences[name]:.1e}",
        }
        for name, each in timings.items()
    ]
    return Measured(rows=rows, seconds=seconds)


def run_step(model: PolicyModel, batches: Batches) -> None:
    """Forward and backward of all spans, gradients of the global mean."""
    model.zero_grad()
    items = sum(batch.num_action_items for batch in batches)
    device = batches[0].actions.device
    for batch in batches:
        # FlashAttention takes half precision only.
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = flow_matching_loss(model(batch), batch)
        torch.autograd.backward(loss / items)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(timings: Sequence[Timing], device: torch.device) -> list[float]:
    """CPU seconds on a CPU, which other processes do not change much, and else elapsed ones."""
    return [timing.cpu_s if device.type == "cpu" else timing.wall_s for timing in timings]


def _gradient_differences(
    case: str, model: PolicyModel, contenders: Mapping[str, Batches]
) -> dict[str, float]:
    """Norm of the difference to the packs' gradients, over the norm of these."""
    flat = {}
    for name, batches in contenders.items():
        run_step(model, batches)
        flat[name] = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    packed = flat[PACKED]
    most = _MOST_DIFFERENCE if packed.device.type == "cpu" else 0.05  # bfloat16's rounding
    differences = {name: float((g - packed).norm() / packed.norm()) for name, g in flat.items()}
    for name, difference in differences.items():
        if not difference <= most:
            raise GradientsDifferError(
                f"{case}: the gradients of {name!r} differ from the packed ones by"
                f" {difference:.1e} of their norm"
            )
    return differences
