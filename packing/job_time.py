"""How long a job would take, and how much of it waiting for data: a simple, stated queue.

A rank's decode processes make its steps one after the other, each step in

    latency * (2 * calls + requests / parallel requests) + bytes / bandwidth + frames * decode time

over the number of processes (a call to the reader is two round trips, and a call's requests run
many at once), as far ahead as the loader's memory allows. A step begins when every rank has its
batches, and lasts as long as its costliest rank.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from packing.errors import PlanError
from packing.storage.facts import StorageFacts
from packing.storage.model import BUFFER_BYTES, Replay
from packing.storage.use import Spread

_ROUND_TRIPS: Final = 2
_RGB_OVER_YUV: Final = 2


@dataclass(frozen=True, kw_only=True)
class JobSpeed:
    """What the machine does; all per rank.

    Attributes:
        step_ms: time in which a rank computes a step of mean cost, or None to leave out time.
        latency_ms: of a round trip to the store.
        bandwidth_mb_s: from the store, in 10^6 bytes per second.
        parallel_requests: of one call.
        decode_ms: CPU time of decoding one frame.
        num_workers: decode processes.
        buffer_bytes: memory of the loader.
    """

    step_ms: float | None = None
    latency_ms: float = 20.0
    bandwidth_mb_s: float = 500.0
    parallel_requests: int = 64
    decode_ms: float = 0.25
    num_workers: int = 1
    buffer_bytes: int = BUFFER_BYTES

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None:
                continue
            if value < 0 or (value == 0 and name not in {"latency_ms", "decode_ms"}):
                raise PlanError(f"{name} is {value}: it must be above 0")


@dataclass(frozen=True, kw_only=True)
class JobTime:
    """The queue's outcome.

    Attributes:
        step_ms: computing of a step, without waiting for data.
        production_ms: in which a rank's workers make a step.
        first_batch_ms: until the first step can begin.
        wait_share: of the time after that, the share spent waiting for data.
        compute_s: computing of all steps of the plan.
        total_s: with waiting.
        prefetched_steps: that fit into the loader's memory.
        read_mb_s: that a rank reads while it computes, in 10^6 bytes per second.
        busy_cores: that a rank's decoding keeps busy.
    """

    step_ms: Spread
    production_ms: Spread
    first_batch_ms: float
    wait_share: float
    compute_s: float
    total_s: float
    prefetched_steps: int
    read_mb_s: float
    busy_cores: float


def job_time(
    replayed: Replay, facts: StorageFacts, max_cost: NDArray[np.float64], speed: JobSpeed
) -> JobTime:
    """Let the steps of a plan queue.

    Args:
        replayed: the reads; of all ranks, or of a sample, each of which then goes by itself.
        facts: of the episodes.
        max_cost: float64 [steps], the costliest rank's, in units of the mean rank's over the plan.
        speed: of the machine, with a step time.

    Raises:
        PlanError: there is no step time.
    """
    if speed.step_ms is None:
        raise PlanError("the time of a job needs step_ms, the time of a step of mean cost")
    packs, use = replayed.packs, replayed.use()
    reads, shown = replayed.reads, replayed.shown
    calls, requests, read, decoded = (
        packs.per_rank_step(values)
        for values in (reads.calls, reads.requests, reads.read_bytes, replayed.decoded_frames)
    )
    production = (
        speed.latency_ms * (_ROUND_TRIPS * calls + requests / speed.parallel_requests)
        + read / (speed.bandwidth_mb_s * 1e3)
        + speed.decode_ms * decoded
    ) / speed.num_workers
    pixels = _RGB_OVER_YUV * facts.frame_bytes.ravel()[shown.stream]
    batch_bytes = packs.per_rank_step(np.bincount(shown.pack, pixels, len(packs.row))).mean()
    # Half of the memory is for batches that wait for their consumer.
    prefetched = max(1, int(min(len(max_cost), speed.buffer_bytes / 2 / max(batch_bytes, 1.0))))
    plan_steps = speed.step_ms * max_cost
    computing = plan_steps[packs.step]
    together = packs.cold and len(computing) == replayed.world_size
    waits = waits_of(production, computing, prefetched, together=together)
    first = float(waits[:, 0].mean())
    waits[:, 0] = 0.0
    waited, worked = float(waits[packs.measured].sum()), float(computing[packs.measured].sum())
    share = waited / (waited + worked)
    compute_s, mean_ms = float(plan_steps.sum()) / 1e3, float(plan_steps.mean())
    return JobTime(
        step_ms=Spread.of(plan_steps),
        production_ms=Spread.of(production[packs.measured]),
        first_batch_ms=first,
        wait_share=share,
        compute_s=compute_s,
        total_s=compute_s / (1.0 - share) + first / 1e3,
        prefetched_steps=prefetched,
        read_mb_s=use.read_bytes.mean / mean_ms / 1e3,
        busy_cores=use.decoded_frames * speed.decode_ms / mean_ms,
    )


def waits_of(
    production: NDArray[np.float64],
    computing: NDArray[np.float64],
    prefetched: int,
    *,
    together: bool,
) -> NDArray[np.float64]:
    """Waiting before each step, of each stretch; float64 [stretches, steps], like the arguments.

    Args:
        production: in which a step's batches are made, one step after the other.
        computing: of each step.
        prefetched: steps that may be made before the consumer takes the first of them.
        together: the stretches are the ranks of one job, which begin every step together.
    """
    stretches, steps = production.shape
    waits = np.zeros((stretches, steps))
    begun = np.zeros((stretches, steps))
    ready, free = np.zeros(stretches), np.zeros(stretches)
    for step in range(steps):
        room = begun[:, step - prefetched] if step >= prefetched else 0.0
        ready = np.maximum(ready, room) + production[:, step]
        begin = np.maximum(free, ready.max() if together else ready)
        waits[:, step] = begin - free
        begun[:, step] = begin
        free = begin + computing[:, step]
    return waits
