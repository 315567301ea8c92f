"""The loader against the limit that decoding sets, and against what else trainers read with.

One idea per file: `loader_data` records video as LeRobot's recorder does, `loader_trajectories`
streams whole episodes beside plain PyAV loops, `loader_windows` streams shuffled window samples,
`loader_start` is about the first batch, `loader_wait` about a trainer that waits, `loader_s3` about
latency, `loader_peers` about other loaders, `loader_headspace` about one's own lake.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from loader import PackLoader
from packing.plan_store import save_plan
from tools.bench.framework import BenchResult, interleave, take_turns
from tools.bench.loader_data import (
    AV1,
    H264,
    H264_GOP30,
    Coding,
    Recorded,
    plan_trajectories,
    record,
)
from tools.bench.loader_s3 import DELAYS_MS, s3_contenders, s3_ratios, s3_rows, served
from tools.bench.loader_start import Start, import_seconds, start, start_rows
from tools.bench.loader_trajectories import (
    trajectory_contenders,
    trajectory_ratios,
    trajectory_rows,
)
from tools.bench.loader_wait import Wait, simulate_training
from tools.bench.loader_windows import (
    RGB,
    TWO_PROCESSES,
    plan_quality,
    stretch_row,
    window_contenders,
)
from tools.bench.stretch import Stretch

_STEP_S: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class LoaderBench:
    """How much is measured.

    Attributes:
        episodes: coding -> episodes of its dataset, about 225 steps each.
        picture: (height, width) of the pictures.
        repetitions: timed rounds.
        skip: packs of windows before the timed ones; None for as many as a run lasts.
        packs: of windows timed per round.
        trajectory_episodes: streamed as whole trajectories.
        training_steps: of 50 ms, for the share of waiting.
        delays_ms: of the object store.
        s3_repetitions: rounds over local disk and the object store.
        starts: fresh processes per process mode.
        warm_up: whether trajectories have an untimed round.
    """

    episodes: Mapping[Coding, int]
    picture: tuple[int, int] = (240, 320)
    repetitions: int
    skip: int | None
    packs: int
    trajectory_episodes: int
    training_steps: int
    delays_ms: tuple[int, ...] = DELAYS_MS
    s3_repetitions: int
    starts: int
    warm_up: bool


FULL: Final = LoaderBench(
    episodes={H264: 300, H264_GOP30: 300, AV1: 120},
    repetitions=5,
    skip=None,
    packs=96,
    trajectory_episodes=20,
    training_steps=200,
    s3_repetitions=5,
    starts=5,
    warm_up=True,
)
QUICK: Final = LoaderBench(
    episodes={H264: 100, H264_GOP30: 100, AV1: 20},
    repetitions=3,
    skip=24,
    packs=24,
    trajectory_episodes=4,
    training_steps=40,
    delays_ms=(20,),
    s3_repetitions=2,
    starts=2,
    warm_up=False,
)


def run(quick: bool) -> BenchResult:  # noqa: FBT001  # the one signature of all benches
    """Measure; `quick` uses less data, fewer packs and 3 repetitions in place of 5."""
    return measure_loader(QUICK if quick else FULL)


def measure_loader(bench: LoaderBench) -> BenchResult:
    """Measure what `bench` says."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        recordings = [
            record(folder, coding, episodes=episodes, size=bench.picture)
            for coding, episodes in bench.episodes.items()
        ]
        h264 = recordings[0]
        save_plan(h264.lake, h264.windows)
        windows = _windows(recordings, bench)
        trajectories, trajectory_cpu = _trajectories(h264, bench)
        from_s3 = _from_s3(h264, bench, folder / "s3")
        starts = _starts(h264, bench)
        wait = _training(h264, bench)
    imports = import_seconds(bench.starts)
    header = h264.windows.header
    ratios = {
        **trajectory_ratios(trajectory_cpu),
        **_window_ratios(windows, recordings),
        **s3_ratios(from_s3),
        "data_wait_share_50ms": wait.share,
        "first_batch_s": _median([s.total_s for s in starts["child"]]),
        "first_batch_inline_s": _median([s.total_s for s in starts["inline"]]),
        "import_loader_s": imports["import loader"],
        "import_pack_loader_s": imports["from loader import PackLoader"],
        "q1": header.quality.shuffle[1],
        "near_duplicates": header.quality.near_duplicates,
        "padding": header.quality.padding,
    }
    if 16 in header.quality.shuffle:
        ratios["q16"] = header.quality.shuffle[16]
    quality = {r.coding.label: plan_quality(r.windows.header) for r in recordings}
    return BenchResult(
        name="loader",
        rows=[
            stretch_row(contender, video, runs, quality[video])
            for (contender, video), runs in windows.items()
        ],
        tables={
            "whole trajectories": trajectories,
            "starting": start_rows(starts),
            "the same lake from an object store": s3_rows(from_s3),
            "a training step of 50 ms": [_wait_row(wait)],
        },
        ratios=ratios,
        notes=_notes(recordings, bench),
    )


def _windows(
    recordings: Sequence[Recorded], bench: LoaderBench
) -> dict[tuple[str, str], list[Stretch]]:
    contenders = {
        key: work
        for number, recorded in enumerate(recordings)
        for key, work in window_contenders(
            recorded, skip=bench.skip, count=bench.packs, others=number == 0
        ).items()
    }
    return take_turns(contenders, repetitions=bench.repetitions)


def _window_ratios(
    windows: Mapping[tuple[str, str], Sequence[Stretch]], recordings: Sequence[Recorded]
) -> dict[str, float]:
    ratios = {
        f"window_cpu_ms_{recorded.coding.key}": _median(
            [s.cpu_ms for s in windows[RGB, recorded.coding.label]]
        )
        for recorded in recordings
    }
    fast = windows[TWO_PROCESSES, recordings[0].coding.label]
    ratios["window_samples_per_s_h264"] = _median([s.samples_per_s for s in fast])
    return ratios


def _trajectories(
    recorded: Recorded, bench: LoaderBench
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The table's lines, and CPU ms per step of each contender."""
    episode_ids = recorded.windows.episodes["episode_id"].to_pylist()
    first = sorted(episode_ids)[: bench.trajectory_episodes]
    plan = plan_trajectories(recorded.lake, first)
    steps = int(recorded.shape.lengths()[: len(first)].sum())
    timings = interleave(
        trajectory_contenders(recorded, plan, steps),
        repetitions=bench.repetitions,
        warm_up=bench.warm_up,
    )
    cpu_ms = {
        name: _median([t.cpu_s / steps * 1e3 for t in runs]) for name, runs in timings.items()
    }
    return trajectory_rows(timings, steps, plan.header), cpu_ms


def _from_s3(recorded: Recorded, bench: LoaderBench, folder: Path) -> dict[str, list[Stretch]]:
    before = min(bench.packs, recorded.windows.header.num_steps // 4)
    with served(recorded, folder, bench.delays_ms) as reached:
        contenders = s3_contenders(recorded, reached, skip=before, count=before)
        return take_turns(contenders, repetitions=bench.s3_repetitions)


def _starts(recorded: Recorded, bench: LoaderBench) -> dict[str, list[Start]]:
    plan_hash = recorded.windows.plan_hash

    begin = partial(start, recorded.lake, plan_hash, batches=bench.packs)
    return take_turns(
        {mode: partial(begin, process=mode) for mode in ("inline", "child")},
        repetitions=bench.starts,
    )


def _training(recorded: Recorded, bench: LoaderBench) -> Wait:
    with PackLoader(recorded.lake, recorded.windows) as loader:
        return simulate_training(iter(loader), step_s=_STEP_S, steps=bench.training_steps)


def _wait_row(wait: Wait) -> dict[str, Any]:
    return {
        "step": f"{_STEP_S * 1e3:.0f} ms",
        "steps": wait.steps,
        "samples per s": wait.samples / wait.elapsed_s,
        "waited, share": wait.share,
    }


def _notes(recordings: Sequence[Recorded], bench: LoaderBench) -> tuple[str, ...]:
    height, width = bench.picture
    sets = "; ".join(
        f"{r.coding.label}: {r.shape.episodes} episodes, {int(r.shape.lengths().sum()):,} steps,"
        f" {r.frame_bytes:,.0f} bytes per frame"
        for r in recordings
    )
    return (
        (
            f"recordings as LeRobot's recorder writes them, 2 cameras {width}x{height}: {sets};"
            " warm page cache, local disk"
        ),
        (
            "a window is 2 pictures and 50 actions; samples are torch tensors, uint8, channels"
            f" first; {bench.packs} batches of 32 timed in the middle of a shuffled plan after"
            f" {'a run' if bench.skip is None else f'{bench.skip} batches'}; batches and run: of"
            " the plan, and for how many of them frames of a run are kept"
        ),
        (
            f"{bench.repetitions} rounds, contenders interleaved, median [least, most]; CPU and"
            " memory are of all processes, reads are read calls whatever the page cache held"
        ),
        (
            "PyAV's loops do nothing but decode, the loader also plans, reads, verifies and builds"
            " batches; arrays are compared with arrays of the same format, decode alone (which"
            " converts nothing) with YUV"
        ),
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
