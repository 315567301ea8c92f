"""A stretch of a stream in its steady state: what is timed, and how.

The first batches of a stream cost more than later ones (readers open files, frames that packs share
are not there yet), so some are taken untimed; then some are timed. Peers are timed by the same code
in environments of their own, so only the standard library is imported here.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.bench.process_tree import memory_mb, spent


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What a contender delivered and what it took, over the timed batches.

    Attributes:
        samples: windows or steps delivered.
        wall_s: elapsed.
        cpu_s: of all its processes.
        read_bytes, reads: of all its processes, through read calls (see `process_tree`).
        memory_mb: of all its processes after the last batch, shared pages counted once.
        first_batch_s: from asking for the stream to having its first batch.
        counted: what the caller counted meanwhile.
    """

    samples: int
    wall_s: float
    cpu_s: float
    read_bytes: int
    reads: int
    memory_mb: float
    first_batch_s: float
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per sample."""
        return self.cpu_s / self.samples * 1e3

    @property
    def samples_per_s(self) -> float:
        """Samples per elapsed second."""
        return self.samples / self.wall_s


def measure_stretches(
    stream: Callable[[], Iterator[Any]],
    *,
    skip: int,
    count: int,
    size: Callable[[Any], int],
    counters: Callable[[], Mapping[str, int]] = dict,
    stretches: int = 1,
) -> list[Stretch]:
    """Time stretches of a stream that follow each other.

    Args:
        stream: begins the stream of batches.
        skip: batches taken untimed first, at least one.
        count: batches timed per stretch.
        size: samples of a batch.
        counters: what else is counted, as sums so far.
        stretches: how many.

    Raises:
        RuntimeError: the stream ended early, so that less would be timed than is told.
    """
    begin = time.perf_counter()
    batches = stream()
    first_batch_s = 0.0
    for number in range(skip):
        if next(batches, None) is None:
            raise RuntimeError(f"the stream ended after {number} of {skip} untimed batches")
        first_batch_s = first_batch_s or time.perf_counter() - begin
    found = []
    for _ in range(stretches):
        counts = counters()
        before, begin = spent(), time.perf_counter()
        samples = 0
        for number in range(count):
            batch = next(batches, None)
            if batch is None:
                raise RuntimeError(f"the stream ended after {number} of {count} timed batches")
            samples += size(batch)
            del batch
        wall_s, used = time.perf_counter() - begin, spent() - before
        found.append(
            Stretch(
                samples=samples,
                wall_s=wall_s,
                cpu_s=used.cpu_s,
                read_bytes=used.read_bytes,
                reads=used.reads,
                memory_mb=memory_mb(),
                first_batch_s=first_batch_s,
                counted={name: total - counts.get(name, 0) for name, total in counters().items()},
            )
        )
    return found
