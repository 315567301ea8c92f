"""What a loader says it spent, and what it says a stall was spent on."""

import json
import pickle
import re
import threading
import time
from collections.abc import Iterator

import pytest

from lake import Lake
from loader import PackLoader
from loader.cursor import Place
from loader.observe.histogram import Histogram
from loader.observe.metrics import STAGES, STALL_S, LoaderMetrics
from loader.observe.snapshot import MetricsSnapshot
from loader.pack_loader import Process
from tests.loader.scenes import scene_plan


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", made)
        yield made


def _place(step: int, *, last: bool = True) -> Place:
    return Place(position=step, step=step, slot=0, last_of_step=last)


def _spend(metrics: LoaderMetrics, clock: Clock, stage: str, seconds: float) -> None:
    with metrics.stage(stage):
        clock.now += seconds


def _stalls(metrics: LoaderMetrics) -> list[tuple[int, float, str]]:
    return [(stall.step, round(stall.wait_s, 6), stall.stage) for stall in metrics.stalls]


def _wait(metrics: LoaderMetrics, clock: Clock, place: Place, seconds: float = 0.0) -> None:
    with metrics.waiting(place):
        clock.now += seconds


def test_the_first_stall_is_the_start(clock: Clock) -> None:
    metrics = LoaderMetrics()
    with metrics.waiting(_place(4)):
        clock.now += 0.6
        _spend(metrics, clock, "fetch", 0.2)
    assert _stalls(metrics) == [(4, 0.8, "start")]


def test_a_stall_has_the_stage_that_took_most_of_the_wait(clock: Clock) -> None:
    metrics = LoaderMetrics()
    _wait(metrics, clock, _place(0))
    _spend(metrics, clock, "decode", 5.0)  # over when the consumer begins to wait
    with metrics.waiting(_place(1)):
        _spend(metrics, clock, "fetch", 0.3)
        _spend(metrics, clock, "assemble", 0.1)
    _wait(metrics, clock, _place(2), 0.5)
    assert _stalls(metrics) == [(1, 0.4, "fetch"), (2, 0.5, "other")]
    assert metrics.num_stalls == 2
    assert metrics.waits.count == 3


def test_the_packs_of_a_step_wait_together(clock: Clock) -> None:
    metrics = LoaderMetrics()
    _wait(metrics, clock, _place(0))
    for last in (False, False, True):
        with metrics.waiting(_place(1, last=last)):
            _spend(metrics, clock, "decode", STALL_S / 2)
    assert [(stall.step, stall.stage) for stall in metrics.stalls] == [(1, "decode")]
    assert metrics.waits.total_s == pytest.approx(1.5 * STALL_S)
    assert metrics.wait_s == pytest.approx(1.5 * STALL_S)


def test_stalls_are_bounded(clock: Clock) -> None:
    metrics = LoaderMetrics()
    for step in range(500):
        _wait(metrics, clock, _place(step), 1.0)
    assert metrics.num_stalls == 500
    assert len(metrics.stalls) < 100
    assert metrics.stalls[-1].step == 499


def test_a_wait_that_is_not_over_shows(clock: Clock) -> None:
    metrics = LoaderMetrics()
    _wait(metrics, clock, _place(0), 1.0)
    clock.now += 2.0  # the trainer's step
    with metrics.waiting(_place(1)):
        clock.now += 7.0
        now = metrics.snapshot()
    assert (now.wait_s, now.elapsed_s) == (8.0, 10.0)
    assert metrics.data_wait_share == pytest.approx(0.8)


def test_what_is_drained_arrives_once_and_whole(clock: Clock) -> None:
    """The side that makes batches and the one that takes them, with JSON between them."""
    makers, taker = [LoaderMetrics(), LoaderMetrics()], LoaderMetrics()
    _wait(taker, clock, _place(0))
    for number, maker in enumerate(makers):
        with maker.stage("fetch"):
            clock.now += 5.0
            begin = clock.now
            clock.now += 0.2
        maker.add(requests=3, retries=number)
        messages = [json.loads(json.dumps(maker.drain())) for _ in range(2)]
        clock.now = begin  # meanwhile the other side has begun to wait
        with taker.waiting(_place(number + 1)):
            clock.now += 0.2
            for message in messages:
                taker.absorb(message)
    assert taker.stages["fetch"].count == 2
    assert taker.stage_s["fetch"] == pytest.approx(10.4)
    assert dict(taker.counts) == {"requests": 6, "retries": 1}
    assert _stalls(taker) == [(1, 0.2, "fetch"), (2, 0.2, "fetch")]


def test_threads_that_read_ahead_explain_no_stall(clock: Clock) -> None:
    metrics = LoaderMetrics()
    _wait(metrics, clock, _place(0))
    with metrics.waiting(_place(1)):
        reader = threading.Thread(target=_spend, args=(metrics, clock, "fetch", 0.4))
        reader.start()
        reader.join()
        _spend(metrics, clock, "decode", 0.3)
    assert metrics.stages["fetch"].count == 1
    assert _stalls(metrics) == [(1, 0.7, "other")]


def test_counts_from_threads_lose_nothing() -> None:
    metrics = LoaderMetrics()
    drained: list[int] = []

    def add() -> None:
        for _ in range(2000):
            metrics.add(requests=1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        drained.append(metrics.drain()["counts"].get("requests", 0))
    assert sum(drained) + metrics.counts["requests"] == 8000


def test_a_snapshot_stays_and_tells_an_interval(clock: Clock) -> None:
    metrics = LoaderMetrics()
    _wait(metrics, clock, _place(0))
    metrics.add(cache_hits=1, cache_misses=3, bytes_read=1000)
    metrics.packs = 10
    before = metrics.snapshot()
    _spend(metrics, clock, "decode", 0.25)
    clock.now += 0.75
    _wait(metrics, clock, _place(1), 1.0)
    metrics.add(cache_hits=6, bytes_read=500)
    metrics.packs = 14
    recent = metrics.snapshot().since(before)
    assert (before.packs, before.stages["decode"].count, before.num_stalls) == (10, 0, 0)
    assert (recent.packs, recent.per_s(recent.packs)) == (4, 2.0)
    assert recent.data_wait_share == pytest.approx(0.5)
    assert recent.stages["decode"].quantile_s(0.5) == pytest.approx(0.25, rel=0.046)
    assert recent.counts == {"cache_hits": 6, "bytes_read": 500}
    assert (before.cache_hit_share, recent.cache_hit_share) == (0.25, 1.0)
    assert [stall.step for stall in recent.stalls] == [1]
    assert recent.since(recent).stalls == ()


def test_a_dict_is_json(clock: Clock) -> None:
    metrics = LoaderMetrics()
    _wait(metrics, clock, _place(7), 2.0)
    figures = json.loads(json.dumps(metrics.to_dict()))
    assert set(figures["stage_calls"]) == set(STAGES)
    assert figures["stalls"] == [{"step": 7, "wait_s": 2.0, "stage": "start"}]
    assert figures["step_waits"]["p99_s"] == pytest.approx(2.0, rel=0.046)
    assert figures["cache_hit_share"] is None
    documented = re.findall(r"`(\w+)`", MetricsSnapshot.to_dict.__doc__ or "")
    assert set(figures) == set(documented) - {"count", "p50_s", "p99_s"}


def test_a_figure_drawn_while_a_wait_ends_counts_it_once(clock: Clock) -> None:
    """Another thread asks for figures at the very moment at which a wait is booked."""
    metrics = LoaderMetrics()
    drawn: list[MetricsSnapshot] = []
    asker = threading.Thread(target=lambda: drawn.append(metrics.snapshot()))

    class Booking(Histogram):
        def add(self, seconds: float) -> None:
            asker.start()
            super().add(seconds)

    metrics.waits = Booking()
    _wait(metrics, clock, _place(0), 3.0)
    asker.join()
    assert (drawn[0].wait_s, drawn[0].waits.count) == (3.0, 1)


def test_another_process_begins_at_zero() -> None:
    metrics = LoaderMetrics(packs=3)
    metrics.add(requests=1)
    assert pickle.loads(pickle.dumps(metrics)).snapshot() == LoaderMetrics().snapshot()


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_stages_and_waits_of_a_stream(scene: Lake, num_workers: int) -> None:
    """One duration per pack and step, from however many decode processes."""
    plan = scene_plan(scene, epochs=1)
    process: Process = "child" if num_workers else "inline"
    workers = max(num_workers, 1)
    with PackLoader(scene, plan, framework="numpy", process=process, num_workers=workers) as loader:
        packs = sum(1 for _ in loader)
        figures = loader.metrics.snapshot()
    assert figures.packs == packs
    assert figures.stages["decode"].count == packs
    assert figures.waits.count == loader.num_steps
    assert figures.waits.total_s == pytest.approx(figures.wait_s)
    assert sum(durations.total_s for durations in figures.stages.values()) > 0
    assert figures.stages["decode"].quantile_s(0.5) <= figures.stages["decode"].quantile_s(0.99)
