"""How far a loader is from each of its limits, on any lake and plan: where the headroom is.

Every level adds one thing that can be the limit; what a level loses against the one above it is
what that thing costs:

- `synthetic`: a batch of the plan copied in memory: no storage, no decoding, no process;
- `cached`: the loader on a lake that the page cache holds, or the node's cache;
- `cold`: nothing cached: files of a local lake are dropped from the page cache first;
- `S3, 20 ms`: from a server on loopback behind so much latency (with the bench's own lake only).

Each is run free, which gives its steps per second, and with a training step of a given length,
which gives the share of time that a trainer would wait.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from lake import Lake
from lake.object_store import is_object_store
from loader import PackedBatch, PackLoader
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from tools.bench.framework import BenchResult
from tools.bench.loader_data import H264, record
from tools.bench.loader_s3 import NO_SERVER, served
from tools.bench.loader_wait import Wait, simulate_training

SYNTHETIC: Final = "synthetic"
CACHED: Final = "cached"
COLD: Final = "cold"

Source = Callable[
    [], AbstractContextManager[tuple[Iterator[Any], Callable[[], Mapping[str, float]]]]
]


@dataclass(frozen=True, kw_only=True)
class Headspace:
    """How long is measured.

    Attributes:
        step_s: of a training step.
        steps: per run after its first.
        most_s: per run; ends it earlier.
        episodes: of the bench's own lake.
        num_workers: decode processes.
    """

    step_s: float = 0.05
    steps: int
    most_s: float
    episodes: int
    num_workers: int = 1

    def with_training(self, *, step_s: float, num_workers: int) -> Self:
        """The same length for another training."""
        return replace(self, step_s=step_s, num_workers=num_workers)


FULL: Final = Headspace(steps=200, most_s=12.0, episodes=200)
QUICK: Final = Headspace(steps=40, most_s=3.0, episodes=60)


@dataclass(frozen=True, kw_only=True)
class Level:
    """What was found at a level.

    Attributes:
        name: of the level.
        free: taking batches as fast as they come.
        training: with training steps.
        stage_s: seconds per stage of the free run, all decode processes together.
    """

    name: str
    free: Wait
    training: Wait
    stage_s: Mapping[str, float]

    @property
    def key(self) -> str:
        """The name as part of the name of a ratio."""
        return self.name.replace(",", "").replace(" ", "_").lower()

    @property
    def limited_by(self) -> str:
        """The stage that took most of the free run's time; waiting for the consumer is none."""
        busy = {name: s for name, s in self.stage_s.items() if name != "send"}
        return max(busy, key=lambda name: busy[name]) if any(busy.values()) else "memory"


def bench_headspace(headspace: Headspace) -> BenchResult:
    """Measure every level on a lake of the bench, served with latency too where that is possible.

    Without the server's program the note says so.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        recorded = record(Path(name), H264, episodes=headspace.episodes, size=(240, 320))
        with served(recorded, Path(name) / "s3", (20,)) as reached:
            more = {way: there.lake for way, there in reached.items()}
            result = measure_headspace(recorded.lake, recorded.windows, headspace, more)
    return result if more else replace(result, notes=(*result.notes, f"no S3: {NO_SERVER}"))


def measure_headspace(
    lake: Lake, plan: Plan, headspace: Headspace, more: Mapping[str, Lake] | None = None
) -> BenchResult:
    """Measure every level.

    Args:
        lake: local or in an object store.
        plan: of that lake.
        headspace: how long.
        more: name -> the same lake reached otherwise, as further levels.
    """
    remote = is_object_store(lake.uri)
    with tempfile.TemporaryDirectory(prefix="headrace-headspace-") as cache:
        node_cache = StorageSettings(cache_dir=cache) if remote else StorageSettings()
        stream = partial(_stream, plan=plan, workers=headspace.num_workers)
        cached = partial(stream, lake, storage=node_cache)
        # What the cached runs find in the cache is what this one puts there.
        _level(CACHED, cached, headspace)
        levels = [
            _level(SYNTHETIC, partial(_synthetic, lake, plan, headspace.steps), headspace),
            _level(CACHED, cached, headspace),
            _level(
                COLD,
                partial(stream, lake, storage=StorageSettings(), cold=not remote),
                headspace,
            ),
        ]
        levels += [
            _level(name, partial(stream, other, storage=StorageSettings()), headspace)
            for name, other in (more or {}).items()
        ]
    return BenchResult(
        name="loader-headspace",
        rows=[_row(level, headspace) for level in levels],
        ratios={
            f"{key}_{level.key}": value
            for level in levels
            for key, value in (
                ("steps_per_s", level.free.steps_per_s),
                ("data_wait_share", level.training.share),
            )
        },
        notes=_notes(plan, headspace, remote=remote),
    )


def drop_from_page_cache(lake: Lake) -> int:
    """Ask the system to forget the files of a local lake; returns their bytes."""
    total = 0
    for path in Path(lake.uri).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # what is not yet on disk would stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                total += path.stat().st_size
    return total


def _level(name: str, source: Source, headspace: Headspace) -> Level:
    measure = partial(simulate_training, steps=headspace.steps, most_s=headspace.most_s)
    with source() as (batches, stage_s):
        free = measure(batches, step_s=0.0)
        busy_s = dict(stage_s())
    with source() as (batches, _):
        training = measure(batches, step_s=headspace.step_s)
    return Level(name=name, free=free, training=training, stage_s=busy_s)


@contextmanager
def _stream(
    lake: Lake, *, plan: Plan, workers: int, storage: StorageSettings, cold: bool = False
) -> Iterator[tuple[Iterator[Any], Callable[[], Mapping[str, float]]]]:
    if cold:
        drop_from_page_cache(lake)
    ranks = plan.header.slots_per_step
    with PackLoader(lake, plan, 0, ranks, num_workers=workers, storage=storage) as loader:
        yield iter(loader), lambda: loader.metrics.stage_s


@contextmanager
def _synthetic(
    lake: Lake, plan: Plan, steps: int
) -> Iterator[tuple[Iterator[Any], Callable[[], Mapping[str, float]]]]:
    with PackLoader(lake, plan) as loader:
        batch = next(iter(loader))
    yield (_copy(batch) for _ in range(steps + 1)), dict


def _copy(batch: PackedBatch[Any]) -> PackedBatch[Any]:
    return batch.with_arrays({name: tensor.clone() for name, tensor in batch.arrays()})


def _row(level: Level, headspace: Headspace) -> dict[str, Any]:
    return {
        "level": level.name,
        "steps per s": level.free.steps_per_s,
        "samples per s": level.free.samples / level.free.elapsed_s,
        "times the trainer's speed": level.free.steps_per_s * headspace.step_s,
        f"waited at {headspace.step_s * 1e3:g} ms per step": level.training.share,
        "limited by": level.limited_by,
    }


def _notes(plan: Plan, headspace: Headspace, *, remote: bool) -> tuple[str, ...]:
    header = plan.header
    return (
        (
            f"plan {header.plan_hash[:12]}: {header.num_steps} steps of {header.slots_per_step}"
            f" packs, Q1 {header.quality.shuffle.get(1, math.nan):.2f}, near-duplicates"
            f" {header.quality.near_duplicates:.3f}; rank 0 of as many ranks as a step has packs;"
            f" decode processes: {headspace.num_workers}"
        ),
        (
            f"every run takes up to {headspace.steps} packs or {headspace.most_s:g} s after its"
            " first batch; synthetic copies one batch in memory"
        ),
        (
            "cold: "
            + (
                "without the node's cache; cached: found in the node's cache"
                if remote
                else "the lake's files were dropped from the page cache, as far as the system let"
                " us; cached: read once before"
            )
        ),
    )
