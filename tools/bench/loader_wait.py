"""How long a trainer waits for data: steps of a given length, by a consumer that sleeps."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A simulated training.

    Attributes:
        steps: taken, without the first.
        samples: spans of those steps.
        wait_s: waited for their batches.
        elapsed_s: from the first batch's step on.
    """

    steps: int
    samples: int
    wait_s: float
    elapsed_s: float

    @property
    def share(self) -> float:
        """Share of the time in which the trainer waited."""
        return self.wait_s / self.elapsed_s

    @property
    def steps_per_s(self) -> float:
        """Steps per elapsed second."""
        return self.steps / self.elapsed_s


def simulate_training(
    batches: Iterator[Any], *, step_s: float, steps: int, most_s: float = math.inf
) -> Wait:
    """Take batches as a trainer would whose device is busy for `step_s` with each.

    The first batch is not timed: how soon it comes is another figure.

    Args:
        batches: of a loader, a batch per step.
        step_s: seconds of a step; 0 takes batches as fast as they come.
        steps: steps after the first; fewer where the batches end.
        most_s: take no further step after so many seconds.
    """
    batch = next(batches)
    begin = time.perf_counter()
    waited = 0.0
    taken = samples = 0
    for _ in range(steps):
        if time.perf_counter() - begin > most_s:
            break
        if step_s:
            time.sleep(step_s)
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        taken += 1
        samples += int(batch.num_spans)
    return Wait(steps=taken, samples=samples, wait_s=waited, elapsed_s=time.perf_counter() - begin)
