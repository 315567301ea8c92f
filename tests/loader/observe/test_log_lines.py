"""Lines of figures in the log."""

import json
import logging

import pytest

from lake import Lake
from loader import PackLoader
from loader.observe.log_lines import line, milliseconds
from loader.observe.metrics import LoaderMetrics
from loader.observe.snapshot import Stall
from packing.plan import Plan


def test_a_loader_logs_the_figures_of_each_interval(
    scene: Lake, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.loader")
    options = {"process": "inline", "framework": "numpy"}
    with PackLoader(scene, plan, 1, 2, log_every_s=1e-9, **options) as loader:  # type: ignore[arg-type]
        packs = sum(1 for _ in loader)
    records = [record for record in caplog.records if record.name == "headrace.loader"]
    figures = [json.loads(json.dumps(record.figures)) for record in records]  # type: ignore[attr-defined]
    assert len(records) == packs == sum(each["packs"] for each in figures)
    assert [each["step"] for each in figures] == [position // 2 for position in range(packs)]
    assert {each["rank"] for each in figures} == {1}
    assert records[-1].getMessage().startswith(f"rank 1, step {plan.num_steps - 1}: ")


def test_no_lines_unless_asked_for(
    scene: Lake, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.loader")
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        next(iter(loader))
    assert not [record for record in caplog.records if record.name == "headrace.loader"]


def test_what_a_line_says() -> None:
    metrics = LoaderMetrics(packs=20, steps=400, elapsed_s=10.0, wait_s=0.5, ahead_bytes=3_000_000)
    metrics.add(bytes_read=20_000_000, cache_hits=3, cache_misses=1, retries=2)
    metrics.stages["decode"].add(0.1)
    metrics.stalls.append(Stall(step=7, wait_s=0.5, stage="fetch"))
    metrics.num_stalls = 1
    said = line(metrics.snapshot())
    for part in (
        "2.0 packs/s",
        "40 observed steps/s",
        "data wait 5.0%",
        "decode p50 ",
        "read 2.0 MB/s",
        "ahead 3 MB",
        "cache hits 75.0%",
        "2 retries",
        "stalls 1; the last: 0.5 s at step 7 (fetch)",
    ):
        assert part in said
    for absent in ("fetch p50", "slow_reads", "bad_spans", "\n"):
        assert absent not in said


def test_durations_for_people() -> None:
    assert [milliseconds(s) for s in (0.0, 0.0123, 2.5)] == ["0 ms", "12.3 ms", "2.5 s"]
