"""What a loader spent, and on what."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

STAGES: Final = ("plan", "fetch", "decode", "assemble", "send")


@dataclass(kw_only=True)
class LoaderMetrics:
    """Sums since the loader began to iterate; grows while it runs.

    Attributes:
        packs, spans, steps: handed out so far; steps are observed steps of episodes.
        stage_s: wall seconds per stage of the producing side (see `STAGES`), all workers added.
        counts: `requests` (calls to storage), `bytes_read` (video), `decoded_frames`,
            `wanted_frames` (pictures in batches), `reused_frames` (of them, from memory).
        wait_s: seconds the consumer waited for data.
        elapsed_s: seconds since the first request for a batch.
        worker_cpu_s: CPU seconds of the decode processes, 0 in process.
    """

    packs: int = 0
    spans: int = 0
    steps: int = 0
    stage_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)
    wait_s: float = 0.0
    elapsed_s: float = 0.0
    worker_cpu_s: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.stage_s[name] += time.perf_counter() - begin

    @property
    def data_wait_share(self) -> float:
        """Share of the elapsed time in which the consumer waited for data."""
        return self.wait_s / self.elapsed_s if self.elapsed_s else 0.0

    def drain(self) -> dict[str, Any]:
        """What the producing side has summed since the last drain, as plain JSON."""
        drained = {"stage_s": dict(self.stage_s), "counts": dict(self.counts)}
        self.stage_s.clear()
        self.counts.clear()
        return drained

    def absorb(self, drained: Mapping[str, Any]) -> None:
        """Add what a producing side drained."""
        for name, seconds in drained["stage_s"].items():
            self.stage_s[name] += seconds
        self.counts.update(drained["counts"])

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain JSON."""
        return {
            "packs": self.packs,
            "spans": self.spans,
            "steps": self.steps,
            "stage_s": {name: round(self.stage_s[name], 6) for name in STAGES},
            "counts": dict(sorted(self.counts.items())),
            "wait_s": round(self.wait_s, 6),
            "elapsed_s": round(self.elapsed_s, 6),
            "data_wait_share": round(self.data_wait_share, 6),
            "worker_cpu_s": round(self.worker_cpu_s, 6),
        }
