"""Attention backends of the training bench: the one all contenders share, and each by itself."""

import statistics
from functools import partial
from typing import Any

import torch

from tools.bench.framework import interleave, spread
from tools.bench.training_case import Case, run_step, seconds_of
from tools.bench.training_packs import PACKED
from training.attention.varlen import BACKENDS, named, use_backend
from training.logs.metrics import peak_flops


def compute_dtype(device: torch.device) -> torch.dtype:
    """Of products: most backends of a GPU take half precision only."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def shared_backend(device: torch.device) -> str:
    """The quickest backend that takes padded batches too: only two know key masks."""
    return "flex" if named("flex").refusal(device, compute_dtype(device)) is None else "sdpa"


def measure_backends(case: Case, *, repetitions: int, device: torch.device) -> list[dict[str, Any]]:
    """Packed steps by every backend that can train here, and why the others cannot.

    `MFU` counts the FLOP of the true segments, three forward passes for a step.
    """
    usable: list[str] = []
    rows: list[dict[str, Any]] = []
    for name, backend in BACKENDS.items():
        reason = backend.refusal(device, compute_dtype(device))
        if reason is None:
            usable.append(name)
        else:
            rows.append({"backend": name, "seconds": "-", "MFU": "-", "refused": reason})
    model = case.model.to(device)
    packed = [batch.to(device) for batch in case.contenders[PACKED]]
    flops = 3 * sum(model.forward_flops(batch) for batch in case.contenders[PACKED])

    def step(name: str) -> None:
        with use_backend(name):
            run_step(model, packed)

    timings = interleave({name: partial(step, name) for name in usable}, repetitions=repetitions)
    peak = peak_flops(device)
    for name, each in timings.items():
        seconds = seconds_of(each, device)
        mfu = flops / statistics.median(seconds) / peak if peak else "-"
        rows.append({"backend": name, "seconds": spread(seconds), "MFU": mfu, "refused": ""})
    return rows
