"""What a loader spent, and on what.

The side that makes batches times its stages and counts; what it gathered since the last batch
crosses with each batch (`drain`, `absorb`), so the consumer's object has the sums of all workers.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from loader.cursor import Place
from loader.observe.histogram import Histogram
from loader.observe.snapshot import MetricsSnapshot, Stall

STAGES: Final = ("plan", "fetch", "decode", "assemble", "send")
STALL_S: Final = 0.1
_KEPT_STALLS: Final = 64
_SHORTEST_BUSY_S: Final = 1e-3  # shorter calls explain no stall
_KEPT_BUSY: Final = 256  # since the batch before; the last ones

_Busy = deque[tuple[str, float, float]]


def _no_busy() -> _Busy:
    return deque(maxlen=_KEPT_BUSY)


def _histograms() -> dict[str, Histogram]:
    return {name: Histogram() for name in STAGES}


@dataclass(kw_only=True)
class LoaderMetrics:
    """Sums since the loader began to iterate; grows while it runs.

    Attributes:
        packs, spans, steps: received so far; steps are observed steps of episodes.
        counts: `requests` (calls to storage), `bytes_read` (video), `needed_bytes` (see
            `loader.fetch.needed_bytes`), `decoded_frames`, `wanted_frames` (pictures in batches),
            `reused_frames` (of them, from memory),
            `cache_hits`, `cache_misses`, `cache_bytes` (of the node's cache), `retries`,
            `slow_reads`, `reread_bytes` (past the caches), `cache_damaged` (entries),
            `bad_spans`, `cpu_decoded_runs`; one that did not occur is absent.
        stages: durations of each stage of the producing side (see `STAGES`), one per call, all
            workers together. `fetch` waits for reads that are not there yet, `send` for room:
            the consumer is slower.
        waits: seconds that the consumer waited for data, one per training step.
        wait_s: their sum, the step under way included.
        elapsed_s: seconds from the first request for a batch to the last batch received.
        worker_cpu_s: CPU seconds of the decode processes, 0 in process.
        ahead_bytes: finished and not yet handed out, when the last batch was sent; 0 in process.
        num_stalls: training steps that were waited for longer than `STALL_S`.
        stalls: the last of them.
    """

    packs: int = 0
    spans: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    stages: dict[str, Histogram] = field(default_factory=_histograms)
    waits: Histogram = field(default_factory=Histogram)
    wait_s: float = 0.0
    elapsed_s: float = 0.0
    worker_cpu_s: float = 0.0
    ahead_bytes: int = 0
    num_stalls: int = 0
    stalls: deque[Stall] = field(default_factory=lambda: deque(maxlen=_KEPT_STALLS))

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting_for: Place | None = None  # the last one
        self._maker = threading.get_ident()
        self._busy = _no_busy()
        self._began: float | None = None
        self._waiting_from: float | None = None
        self._step_wait_s = 0.0
        self._step_busy_s: defaultdict[str, float] = defaultdict(float)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """In another process nothing has been spent yet."""
        return type(self), ()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; from any thread.

        What explains a stall is only the thread that made this object: threads that read ahead of
        it keep nobody waiting until it waits for them, in a stage of its own.
        """
        begin = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            with self._lock:
                self.stages[name].add(end - begin)
                if end - begin > _SHORTEST_BUSY_S and threading.get_ident() == self._maker:
                    self._busy.append((name, begin, end))

    def add(self, **amounts: int) -> None:
        """Add to counts; from any thread, where `counts[name] += n` might lose some."""
        with self._lock:
            self.counts.update(amounts)

    @contextmanager
    def waiting(self, place: Place) -> Iterator[None]:
        """The consumer waits for the batch of this place."""
        self.waiting_for = place
        begin = self._waiting_from = time.perf_counter()
        if self._began is None:
            self._began = begin
        try:
            yield
        finally:
            with self._lock:  # another thread may draw the figures meanwhile
                self._waiting_from = None
                self._waited(begin, time.perf_counter(), place)

    def _waited(self, begin: float, end: float, place: Place) -> None:
        busy, self._busy = self._busy, _no_busy()
        self.wait_s += end - begin
        self.elapsed_s = end - (self._began or 0.0)
        self._step_wait_s += end - begin
        # The clock is the system's: times of a decode process can be compared with ours.
        for name, busy_from, busy_to in busy:
            self._step_busy_s[name] += max(0.0, min(busy_to, end) - max(busy_from, begin))
        if not place.last_of_step:
            return
        waited_s, self._step_wait_s = self._step_wait_s, 0.0
        busy_s, self._step_busy_s = self._step_busy_s, defaultdict(float)
        if waited_s >= STALL_S:
            idle = "start" if not self.waits.count else "other"
            busy_s[idle] += max(0.0, waited_s - sum(busy_s.values()))
            stage = max(busy_s, key=lambda name: busy_s[name])
            self.num_stalls += 1
            self.stalls.append(Stall(step=place.step, wait_s=waited_s, stage=stage))
        self.waits.add(waited_s)

    @property
    def stage_s(self) -> dict[str, float]:
        """Wall seconds of each stage, all workers added."""
        return {name: durations.total_s for name, durations in self.stages.items()}

    @property
    def data_wait_share(self) -> float:
        """Share of the elapsed time in which the consumer waited for data."""
        return self.snapshot().data_wait_share

    def drain(self) -> dict[str, Any]:
        """What the producing side has gathered since the last drain, as plain JSON."""
        with self._lock:
            stages, self.stages = self.stages, _histograms()
            counts, self.counts = self.counts, Counter()
            busy, self._busy = self._busy, _no_busy()
        return {
            "stages": {name: h.to_message() for name, h in stages.items() if h.count},
            "counts": dict(counts),
            "busy": list(busy),
        }

    def absorb(self, drained: Mapping[str, Any]) -> None:
        """Add what a producing side drained."""
        with self._lock:
            for name, message in drained["stages"].items():
                self.stages[name].merge(Histogram.from_message(message))
            self.counts.update(drained["counts"])
            self._busy += [(name, begin, end) for name, begin, end in drained["busy"]]

    def snapshot(self) -> MetricsSnapshot:
        """The figures of now, which no longer change; a wait that is not over counts so far."""
        with self._lock:
            now, began, waiting_from = time.perf_counter(), self._began, self._waiting_from
            pending_s = 0.0 if waiting_from is None else now - waiting_from
            elapsed_s = self.elapsed_s if began is None or waiting_from is None else now - began
            return MetricsSnapshot(
                packs=self.packs,
                spans=self.spans,
                steps=self.steps,
                counts=dict(self.counts),
                stages={name: durations.copy() for name, durations in self.stages.items()},
                waits=self.waits.copy(),
                wait_s=self.wait_s + pending_s,
                elapsed_s=elapsed_s,
                worker_cpu_s=self.worker_cpu_s,
                ahead_bytes=self.ahead_bytes,
                num_stalls=self.num_stalls,
                stalls=tuple(self.stalls),
            )

    def to_dict(self) -> dict[str, Any]:
        """See `MetricsSnapshot.to_dict`."""
        return self.snapshot().to_dict()
