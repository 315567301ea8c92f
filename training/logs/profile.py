"""A step under torch's profiler: how much of it is arithmetic, and how much communication."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from training.distributed import Ranks

# Kernels and host operations of NCCL and gloo, by the names that torch gives them.
_EXCHANGE: Final = ("nccl:", "ncclDevKernel", "ncclKernel", "gloo:")


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Time of one rank in a step, by torch's profiler.

    Attributes:
        step, rank: which.
        busy_s: of the device's kernels; on a CPU, of operations alone (without those they call).
        exchange_s: of them, exchange of weights and gradients with other ranks, hidden or not.
        trace: file for chrome://tracing or Perfetto.
    """

    step: int
    rank: int
    busy_s: float
    exchange_s: float
    trace: str


@contextmanager
def profiled(folder: Path, ranks: Ranks, step: int, *, every: int) -> Iterator[None]:
    """Profile what is done inside, if the step is one of every `every`; 0 profiles none.

    Writes `step-00000100-rank0.json.gz`, a trace, and a line of `profile-rank0.jsonl`.
    """
    if not every or step % every:
        yield
        return
    activities = [ProfilerActivity.CPU]
    on_gpu = ranks.device.type == "cuda"
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        yield
        if on_gpu:
            torch.cuda.synchronize(ranks.device)
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / f"step-{step:08d}-rank{ranks.rank}.json.gz"
    profiler.export_chrome_trace(str(trace))
    busy, exchange = 0.0, 0.0
    for event in profiler.key_averages():
        spent = _spent_s(event, on_gpu=on_gpu)
        busy += spent
        if event.key.startswith(_EXCHANGE):
            exchange += spent
    found = StepProfile(
        step=step, rank=ranks.rank, busy_s=busy, exchange_s=exchange, trace=trace.name
    )
    with (folder / f"profile-rank{ranks.rank}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(found)) + "\n")


def _spent_s(event: Any, *, on_gpu: bool) -> float:  # noqa: ANN401  # torch names no type for it
    microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
    return float(microseconds) / 1e6
