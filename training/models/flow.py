"""Flow matching: noise and time of every planned span, from a counter and not from a stream.

The draw of a span is a pure function of (plan hash, epoch, span id, occurrence in the epoch): the
loss does not depend on how spans are packed, on the number of ranks, or on where a run was resumed,
and a span that a mixture repeats meets other noise each time.

Convention of pi0 (arXiv:2410.24164, section IV): time 0 is noise, time 1 is data;
x_t = t * action + (1 - t) * noise; the network predicts the velocity, action - noise.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

_GOLDEN: Final = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as int64
_MIX_1: Final = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
_MIX_2: Final = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
_TIME_STREAM: Final = 0x74696D65
# pi0's longest time: the last thousandth is never drawn.
_LAST_TIME: Final = 0.999


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowDraws:
    """Noise and time of the action queries of a batch.

    Attributes:
        noise: [Q, Da] float32, standard normal.
        time: [N] float32 in [0, 1), one per span row.
    """

    noise: Tensor
    time: Tensor


def draw_flow(
    span_ids: Tensor,
    occurrence_ids: Tensor,
    query_spans: Tensor,
    query_positions: Tensor,
    *,
    action_dim: int,
    plan_hash: str,
    epoch: int,
    time_sampling: Literal["beta", "uniform"] = "beta",
) -> FlowDraws:
    """Draw noise and time for every span of a batch.

    Args:
        span_ids: [N] int64.
        occurrence_ids: [N] int32, how often each span has occurred in the epoch before.
        query_spans: [Q] int64, row in [N] of each action query.
        query_positions: [Q] int64, place of each query in its span's chunk.
        action_dim: Da.
        plan_hash: of the plan that the spans belong to.
        epoch: of the batch.
        time_sampling: `beta`: s * (1 - Beta(1.5, 1)), denser near the noise, as in pi0;
            `uniform`: s * U(0, 1); s = 0.999.
    """
    digest = hashlib.sha256(f"{plan_hash}:{epoch}".encode()).digest()
    key = int.from_bytes(digest[:8], "little", signed=True)
    first = _mix(_mix(span_ids * _GOLDEN) ^ key)
    again = _mix(first ^ _mix(occurrence_ids.long() * _GOLDEN))
    span_keys = torch.where(occurrence_ids > 0, again, first)
    uniform = _uniform(span_keys ^ _TIME_STREAM)
    # Beta(a, 1) has the distribution function x**a, so its inverse is a root.
    time = uniform if time_sampling == "uniform" else 1.0 - uniform ** (1.0 / 1.5)
    dims = torch.arange(action_dim, device=span_ids.device)
    counters = 2 * (query_positions[:, None] * action_dim + dims)
    keys = span_keys[query_spans][:, None]
    radius = torch.sqrt(-2.0 * torch.log(1.0 - _uniform(keys + (counters + 1) * _GOLDEN)))
    angle = (2.0 * math.pi) * _uniform(keys + (counters + 2) * _GOLDEN)
    return FlowDraws(
        noise=(radius * torch.cos(angle)).to(torch.float32),
        time=(_LAST_TIME * time).to(torch.float32),
    )


def _uniform(counters: Tensor) -> Tensor:
    """Float64 in [0, 1) from the upper 53 bits of the mixed counters."""
    return _shift_right(_mix(counters), 11).to(torch.float64) * 2.0**-53


def _mix(bits: Tensor) -> Tensor:
    """Finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) on int64 that wraps around."""
    bits = (bits ^ _shift_right(bits, 30)) * _MIX_1
    bits = (bits ^ _shift_right(bits, 27)) * _MIX_2
    return bits ^ _shift_right(bits, 31)


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift: int64's own keeps the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
