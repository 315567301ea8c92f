"""A line of figures in the log, from time to time: for jobs that nobody watches."""

import logging
import time
from typing import Final

from loader.observe.histogram import Histogram
from loader.observe.metrics import LoaderMetrics
from loader.observe.snapshot import MetricsSnapshot

LOGGER: Final = logging.getLogger("headrace.loader")
TROUBLES: Final = ("retries", "slow_reads", "cache_damaged", "bad_spans")


class LogLines:
    """Logs the figures of each interval at level INFO to the logger `headrace.loader`.

    A record's `figures` are the interval's as plain JSON (see `MetricsSnapshot.to_dict`), with
    `rank` and `step`, for formatters that write more than the line.

    Args:
        metrics: of the running iteration.
        every_s: seconds between lines, at least; a line comes with a batch.
        rank: named in each line.
    """

    def __init__(self, metrics: LoaderMetrics, *, every_s: float, rank: int) -> None:
        self._metrics = metrics
        self._every_s = every_s
        self._rank = rank
        self._before = metrics.snapshot()
        self._due = time.monotonic() + every_s

    def look(self, step: int) -> None:
        """Log a line where one is due; `step` is the training step of the last batch."""
        if time.monotonic() < self._due:
            return
        now = self._metrics.snapshot()
        recent, self._before = now.since(self._before), now
        self._due = time.monotonic() + self._every_s
        figures = {"rank": self._rank, "step": step, **recent.to_dict()}
        LOGGER.info(
            "rank %d, step %d: %s", self._rank, step, line(recent), extra={"figures": figures}
        )


def line(figures: MetricsSnapshot) -> str:
    """The figures in one line."""
    stages = [f"{name} {quantiles(calls)}" for name, calls in figures.stages.items() if calls.count]
    parts = [
        f"{figures.per_s(figures.packs):,.1f} packs/s",
        f"{figures.per_s(figures.steps):,.0f} observed steps/s",
        f"data wait {figures.data_wait_share:.1%} ({quantiles(figures.waits)} per step)",
        *stages,
        f"read {figures.per_s(figures.counts.get('bytes_read', 0)) / 1e6:,.1f} MB/s",
        f"ahead {figures.ahead_bytes / 1e6:,.0f} MB",
    ]
    if figures.cache_hit_share is not None:
        parts.append(f"cache hits {figures.cache_hit_share:.1%}")
    parts += [f"{figures.counts[name]} {name}" for name in TROUBLES if name in figures.counts]
    if figures.stalls:
        parts.append(f"stalls {stalls_text(figures)}")
    return ", ".join(parts)


def stalls_text(figures: MetricsSnapshot) -> str:
    """How many training steps waited long, and why the last of them did."""
    if not figures.stalls:
        return "none"
    last = figures.stalls[-1]
    return f"{figures.num_stalls}; the last: {last.wait_s:.1f} s at step {last.step} ({last.stage})"


def quantiles(durations: Histogram) -> str:
    """Median and 99th percentile."""
    half, most = durations.quantile_s(0.5), durations.quantile_s(0.99)
    return f"p50 {milliseconds(half)} p99 {milliseconds(most)}"


def milliseconds(seconds: float) -> str:
    """A duration for people, three digits."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
