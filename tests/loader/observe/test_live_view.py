"""The live view of a loader."""

import io
import time

import pytest
from rich.console import Console

from loader.observe.live_view import LiveView, sparkline
from loader.observe.metrics import LoaderMetrics
from loader.observe.snapshot import Stall


def _drawn(view: LiveView, *, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(view)
    written = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO above
    return str(written)


def _row(drawn: str, name: str) -> list[str]:
    (found,) = [text for text in drawn.splitlines() if text.strip().startswith(name)]
    return [cell for cell in found.strip().removeprefix(name).split("  ") if cell.strip()]


def test_now_and_overall(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    metrics = LoaderMetrics(packs=100, elapsed_s=100.0, wait_s=50.0)
    metrics.stages["decode"].add(0.010)
    view = LiveView(lambda: metrics)
    assert [cell.strip() for cell in _row(_drawn(view), "packs/s")] == ["1.0", "1.0"]
    now[0] += 2.0
    metrics.packs, metrics.elapsed_s = 140, 102.0
    metrics.stages["decode"].add(1.0)
    metrics.num_stalls = 1
    metrics.stalls.append(Stall(step=9, wait_s=0.25, stage="fetch"))
    drawn = _drawn(view)
    assert [cell.strip() for cell in _row(drawn, "packs/s")] == ["20.0", "1.4"]
    assert [cell.strip() for cell in _row(drawn, "data wait")] == ["0.0%", "49.0%"]
    assert "1; the last: 0.2 s at step 9 (fetch)" in drawn
    assert _row(drawn, "decode")[2].strip() == "50%"
    assert not [text for text in drawn.splitlines() if text.startswith("fetch")]


def test_steps_of_the_trainer_are_a_sparkline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    view = LiveView(LoaderMetrics)
    assert "training steps" not in _drawn(view)
    for seconds in (0.0, 0.0625, 0.25, 0.0625):
        now[0] += seconds
        view.step_done()
    assert [cell.strip() for cell in _row(_drawn(view), "training steps")] == [
        "▃█▃",
        "highest 250 ms",
    ]


def test_no_number_is_cut_short_on_a_narrow_terminal() -> None:
    metrics = LoaderMetrics(packs=12345, elapsed_s=1.0)
    metrics.stages["assemble"].add(1.234e-5)
    drawn = _drawn(LiveView(lambda: metrics), width=44)
    assert "…" not in drawn[drawn.index("stage") :]
    assert "assemble" in drawn
    assert max(map(len, drawn.splitlines())) <= 44


def test_a_sparkline_has_a_bar_per_value() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 1, 7]) == "▁▂█"
