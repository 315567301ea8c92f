"""Which backend a run attends by: named, or measured on the run's own device and calls."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor

from training.attention.backend import Attend, Backend
from training.attention.calls import AttentionCall
from training.attention.per_segment import SDPA, attend
from training.attention.varlen import BACKENDS, named
from training.errors import ConfigError

_WARM_UP: Final = 3
_ROUNDS: Final = 10
# Largest difference from the reference in float32, over its largest value: what rounding leaves.
# A wrong mask is off by far more.
_TOLERANCE: Final = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.05}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The backend of a run.

    Attributes:
        name: in `training.attention.varlen.BACKENDS`.
        measured_ms: of each backend that was measured, forward and backward of all attention calls
            of one batch; empty where there was nothing to choose among.
        refused: reason why each of the others was not.
    """

    name: str
    measured_ms: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the record of a run."""
        return {
            "backend": self.name,
            "measured_ms": {name: round(ms, 4) for name, ms in self.measured_ms.items()},
            "refused": dict(self.refused),
        }


def choose_backend(
    wanted: str,
    device: torch.device,
    dtype: torch.dtype,
    calls: Callable[[], Sequence[AttentionCall]],
) -> Choice:
    """The backend that is asked for, or with `auto` the quickest one.

    `auto` measures every backend that this machine can train with, forward and backward, on the
    calls of a batch, and refuses those that fail, that compute something other than the reference,
    or that, where torch is told to be deterministic, give other bits the second time; then it
    takes the first of the rest, since the quickest may be another one when the run goes on. Where
    only one can run, as on a CPU, nothing is measured.

    Args:
        wanted: a name in `training.attention.varlen.BACKENDS`, or `auto`.
        device: of the run.
        dtype: of queries, keys and values.
        calls: gives the calls of a batch (see `training.attention.calls.calls_of`); not called
            where there is nothing to measure.

    Raises:
        ConfigError: the backend that is asked for does not exist or cannot run here, or with
            `auto` none can.
    """
    if wanted != "auto":
        reason = named(wanted).refusal(device, dtype)
        if reason is not None:
            raise ConfigError(f"attention backend {wanted} cannot be used: {reason}")
        return Choice(name=wanted)
    refused: dict[str, str] = {}
    usable: dict[str, Backend] = {}
    for name, backend in BACKENDS.items():
        reason = backend.refusal(device, dtype)
        if reason is None:
            usable[name] = backend
        else:
            refused[name] = reason
    if len(usable) == 1:
        return Choice(name=next(iter(usable)), refused=refused)
    trials = [_Trial.of(call) for call in calls()]
    if not trials:
        return Choice(name=SDPA.name, refused=refused)
    for name in tuple(usable):
        reason = _fault(usable[name].load(), trials)
        if reason is not None:
            refused[name] = reason
            del usable[name]
    if not usable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise ConfigError(f"no attention backend can be used on these batches: {reasons}")
    if torch.are_deterministic_algorithms_enabled():
        return Choice(name=next(iter(usable)), refused=refused)
    measured = _measure(usable, trials, device)
    return Choice(
        name=min(measured, key=lambda n: measured[n]), measured_ms=measured, refused=refused
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trial:
    """A call with made-up values.

    Attributes:
        call: which.
        inputs: queries, keys, values.
        weights: gradient of the output.
        expected: output and gradients of the reference in float32.
    """

    call: AttentionCall
    inputs: tuple[Tensor, Tensor, Tensor]
    weights: Tensor
    expected: tuple[Tensor, ...]

    @classmethod
    def of(cls, call: AttentionCall) -> "_Trial":
        generator = torch.Generator(call.device).manual_seed(0)
        q, k, v, weights = (
            torch.randn(shape, generator=generator, device=call.device).to(call.dtype)
            for shape in (call.q_shape, call.k_shape, call.k_shape, call.q_shape)
        )
        exact = (q.float(), k.float(), v.float())
        return cls(
            call=call,
            inputs=(q, k, v),
            weights=weights,
            expected=_run(attend, exact, weights.float(), call),
        )

    def run(self, attend_by: Attend) -> tuple[Tensor, ...]:
        return _run(attend_by, self.inputs, self.weights, self.call)


def _run(
    attend_by: Attend,
    inputs: tuple[Tensor, Tensor, Tensor],
    weights: Tensor,
    call: AttentionCall,
) -> tuple[Tensor, ...]:
    """Output, and gradients of queries, keys and values."""
    q, k, v = (tensor.detach().requires_grad_() for tensor in inputs)
    out = attend_by(q, k, v, call.segments)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), weights)


def _fault(attend_by: Attend, trials: Sequence[_Trial]) -> str | None:
    """What is wrong with a backend on these calls, None where nothing is."""
    for trial in trials:
        heads = f"{trial.call.q_shape} queries, {trial.call.k_shape} keys"
        try:
            found = trial.run(attend_by)
            again = trial.run(attend_by)
        except Exception as error:  # noqa: BLE001  # of libraries and compilers, whatever they raise
            lines = str(error).splitlines() or [""]
            return f"failed on {heads}: {type(error).__name__}: {lines[0]}"
        tolerance = _TOLERANCE[trial.call.dtype]
        for what, one, other in zip(
            ("output", "dq", "dk", "dv"), found, trial.expected, strict=True
        ):
            off = _relative(one, other)
            if not off <= tolerance:  # a NaN is not
                return f"its {what} is off by {off:.2g} on {heads} (allowed: {tolerance})"
        if torch.are_deterministic_algorithms_enabled() and not all(
            torch.equal(one, other) for one, other in zip(found, again, strict=True)
        ):
            return f"gives other bits the second time on {heads}, and the run is deterministic"
    return None


def _relative(found: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    scale = expected.abs().max().clamp(min=1e-6)
    return float((found.float() - expected).abs().max() / scale)


def _measure(
    usable: Mapping[str, Backend], trials: Sequence[_Trial], device: torch.device
) -> dict[str, float]:
    """Milliseconds of all calls of a batch, the median of rounds; backends take turns.

    What a backend makes of segments once per batch counts once.
    """
    attend_by = {name: backend.load() for name, backend in usable.items()}
    rounds: dict[str, list[float]] = {name: [] for name in usable}
    for number in range(_WARM_UP + _ROUNDS):
        for name, backend in usable.items():
            total = 0.0
            for trial in trials:
                begin = _now_ms(device)
                call = replace(trial.call, segments=replace(trial.call.segments))  # nothing made
                backend.prepare(call.segments)
                ready = _now_ms(device)
                _run(attend_by[name], trial.inputs, trial.weights, call)
                total += ready - begin + (_now_ms(device) - ready) * call.times
            if number >= _WARM_UP:
                rounds[name].append(total)
    return {name: statistics.median(times) for name, times in rounds.items()}


def _now_ms(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() * 1e3
