"""The figures of a loader at one moment, and of the time between two moments."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loader.observe.histogram import Histogram


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A training step that the consumer waited long for.

    Attributes:
        step: the step.
        wait_s: seconds waited for its batches.
        stage: what the process that made them did most of that time: a stage of
            `loader.metrics.STAGES`; `start` before its first batch, while it was not yet working;
            else `other`.
    """

    step: int
    wait_s: float
    stage: str


@dataclass(frozen=True, kw_only=True)
class MetricsSnapshot:
    """Figures that no longer change; names as in `LoaderMetrics`.

    Attributes:
        stages: durations of each stage, one per call.
        waits: seconds that the consumer waited for data, one per training step.
        stalls: the last of the `num_stalls` steps that were waited long for.
    """

    packs: int
    spans: int
    steps: int
    counts: Mapping[str, int]
    stages: Mapping[str, Histogram]
    waits: Histogram
    wait_s: float
    elapsed_s: float
    worker_cpu_s: float
    ahead_bytes: int
    num_stalls: int
    stalls: tuple[Stall, ...]

    @property
    def data_wait_share(self) -> float:
        """Share of the elapsed time in which the consumer waited for data."""
        return self.wait_s / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cache_hit_share(self) -> float | None:
        """Share of what was asked of the node's cache that it held; None without a cache."""
        hits = self.counts.get("cache_hits", 0)
        asked = hits + self.counts.get("cache_misses", 0)
        return hits / asked if asked else None

    def per_s(self, amount: float) -> float:
        """An amount of these figures per second of the elapsed time."""
        return amount / self.elapsed_s if self.elapsed_s else 0.0

    def since(self, earlier: "MetricsSnapshot") -> "MetricsSnapshot":
        """The figures of the time between an earlier snapshot of the same iteration and this."""
        stalls = self.num_stalls - earlier.num_stalls
        return MetricsSnapshot(
            packs=self.packs - earlier.packs,
            spans=self.spans - earlier.spans,
            steps=self.steps - earlier.steps,
            counts=Counter(self.counts) - Counter(earlier.counts),
            stages={name: h.since(earlier.stages[name]) for name, h in self.stages.items()},
            waits=self.waits.since(earlier.waits),
            wait_s=self.wait_s - earlier.wait_s,
            elapsed_s=self.elapsed_s - earlier.elapsed_s,
            worker_cpu_s=self.worker_cpu_s - earlier.worker_cpu_s,
            ahead_bytes=self.ahead_bytes,
            num_stalls=stalls,
            stalls=self.stalls[-stalls:] if stalls else (),
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain JSON: those above by their names, and what follows from them.

        Returns:
            `packs`, `spans`, `steps`, `counts`, `wait_s`, `elapsed_s`, `worker_cpu_s`,
            `ahead_bytes`, `num_stalls`, `stalls` as above; `stage_s`: seconds in each stage;
            `stage_calls`: of each stage `count`, `p50_s`, `p99_s`; `step_waits`: the same of the
            waits of training steps; `cache_hit_share`: None without a cache; `bytes_read_per_s`;
            `data_wait_share`.
        """
        return {
            "packs": self.packs,
            "spans": self.spans,
            "steps": self.steps,
            "stage_s": {name: round(h.total_s, 6) for name, h in self.stages.items()},
            "stage_calls": {name: _quantiles(h) for name, h in self.stages.items()},
            "counts": dict(sorted(self.counts.items())),
            "cache_hit_share": _rounded(self.cache_hit_share),
            "bytes_read_per_s": round(self.per_s(self.counts.get("bytes_read", 0))),
            "wait_s": round(self.wait_s, 6),
            "step_waits": _quantiles(self.waits),
            "elapsed_s": round(self.elapsed_s, 6),
            "data_wait_share": round(self.data_wait_share, 6),
            "worker_cpu_s": round(self.worker_cpu_s, 6),
            "ahead_bytes": self.ahead_bytes,
            "num_stalls": self.num_stalls,
            "stalls": [
                {**asdict(stall), "wait_s": round(stall.wait_s, 6)} for stall in self.stalls
            ],
        }


def _quantiles(durations: Histogram) -> dict[str, float]:
    return {
        "count": durations.count,
        "p50_s": round(durations.quantile_s(0.5), 6),
        "p99_s": round(durations.quantile_s(0.99), 6),
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)
