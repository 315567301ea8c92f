"""The figures of a running loader as a table that `rich.live.Live` keeps drawing."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table

from loader.observe.histogram import Histogram
from loader.observe.log_lines import TROUBLES, milliseconds, stalls_text
from loader.observe.metrics import LoaderMetrics
from loader.observe.snapshot import MetricsSnapshot

_RECENT_S: Final = 5.0
_SHOWN_STEPS: Final = 32
_BARS: Final = "▁▂▃▄▅▆▇█"


class LiveView:
    """What a loader does now and has done; draw it from any thread.

    `now` is the last few seconds.

    Args:
        metrics: gives the object of the running iteration.
    """

    def __init__(self, metrics: Callable[[], LoaderMetrics]) -> None:
        self._metrics = metrics
        self._seen: deque[tuple[float, MetricsSnapshot]] = deque()
        self._step_s: deque[float] = deque(maxlen=_SHOWN_STEPS)
        self._step_end: float | None = None

    def step_done(self) -> None:
        """The trainer has done a step."""
        now = time.perf_counter()
        if self._step_end is not None:
            self._step_s.append(now - self._step_end)
        self._step_end = now

    def __rich__(self) -> RenderableType:
        now, overall = time.perf_counter(), self._metrics().snapshot()
        self._seen.append((now, overall))
        while now - self._seen[0][0] > _RECENT_S and len(self._seen) > 2:
            self._seen.popleft()
        recent = overall.since(self._seen[0][1]) if len(self._seen) > 1 else overall
        return Group(_figures(recent, overall, list(self._step_s)), _stages(recent, overall))


def sparkline(values: Sequence[float]) -> str:
    """One character per value, as high as its share of the largest."""
    largest = max(values, default=0.0) or 1.0
    return "".join(
        _BARS[min(int(value / largest * len(_BARS)), len(_BARS) - 1)] for value in values
    )


def _figures(
    recent: MetricsSnapshot, overall: MetricsSnapshot, step_s: Sequence[float]
) -> RenderableType:
    table = Table("", "now", "overall", box=None, header_style="bold", padding=(0, 3, 0, 0))
    for name, text in _ROWS.items():
        table.add_row(name, text(recent), text(overall))
    if step_s:
        most = milliseconds(max(step_s))
        table.add_row("training steps", sparkline(step_s), f"highest {most}")
    return table


def _stages(recent: MetricsSnapshot, overall: MetricsSnapshot) -> RenderableType:
    table = Table(box=None, header_style="bold", padding=(0, 3, 0, 0))
    table.add_column("stage", no_wrap=True)
    for name in ("p50", "p99", "of the time", "p50 overall", "p99 overall"):
        table.add_column(name, overflow="fold")  # a number cut short would be another number
    for name, durations in overall.stages.items():
        if durations.count:
            now = recent.stages[name]
            share = f"{recent.per_s(now.total_s):.0%}"
            table.add_row(name, *_quantiles(now), share, *_quantiles(durations))
    return table


def _quantiles(durations: Histogram) -> tuple[str, str]:
    if not durations.count:
        return "-", "-"
    return milliseconds(durations.quantile_s(0.5)), milliseconds(durations.quantile_s(0.99))


def _cache(figures: MetricsSnapshot) -> str:
    return "-" if figures.cache_hit_share is None else f"{figures.cache_hit_share:.1%}"


def _troubles(figures: MetricsSnapshot) -> str:
    found = [f"{figures.counts[name]} {name}" for name in TROUBLES if name in figures.counts]
    return ", ".join(found) or "none"


_ROWS: Final[dict[str, Callable[[MetricsSnapshot], str]]] = {
    "packs/s": lambda f: f"{f.per_s(f.packs):,.1f}",
    "spans/s": lambda f: f"{f.per_s(f.spans):,.0f}",
    "observed steps/s": lambda f: f"{f.per_s(f.steps):,.0f}",
    "read MB/s": lambda f: f"{f.per_s(f.counts.get('bytes_read', 0)) / 1e6:,.1f}",
    "data wait": lambda f: f"{f.data_wait_share:.1%}",
    "step wait p50, p99": lambda f: ", ".join(_quantiles(f.waits)),
    "cache hits": _cache,
    "ahead": lambda f: f"{f.ahead_bytes / 1e6:,.0f} MB",
    "troubles": _troubles,
    "stalls": stalls_text,
}
