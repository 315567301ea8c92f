"""The loader against the limit that decoding sets, and against what else trainers read with.

One idea per file: `loader_data` records video as LeRobot's recorder does, `loader_trajectories`
streams whole episodes beside plain PyAV loops, `loader_windows` streams shuffled window samples,
`loader_window_face` takes them one by one, `loader_peers` runs other loaders, `loader_s3` adds
latency, `loader_start` is about the first batch, `loader_wait` about a trainer that waits,
`loader_headspace` about one's own lake.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from loader import PackLoader
from packing.plan_store import save_plan
from tools.bench.framework import BenchResult, interleave, take_turns
from tools.bench.loader_data import Recorded, plan_trajectories, record_all
from tools.bench.loader_peers import NOT_INSTALLED, peer_contenders
from tools.bench.loader_picture import draw_contenders
from tools.bench.loader_s3 import s3_contenders, s3_ratios, s3_rows, served
from tools.bench.loader_size import FULL, QUICK, LoaderBench
from tools.bench.loader_start import Start, import_seconds, start, start_rows
from tools.bench.loader_trajectories import (
    trajectory_contenders,
    trajectory_ratios,
    trajectory_rows,
)
from tools.bench.loader_wait import Wait, simulate_training
from tools.bench.loader_window_face import face_contenders, face_ratios
from tools.bench.loader_windows import (
    plan_quality,
    steps_before,
    stretch_row,
    window_contenders,
    window_ratios,
)
from tools.bench.stretch import Stretch
from tools.peers.job import PeerRun

_STEP_S: Final = 0.05


def run(quick: bool, interpreters: Sequence[str] = ()) -> BenchResult:  # noqa: FBT001  # the one signature of all benches
    """Measure; `quick` uses less data, fewer packs and 3 repetitions in place of 5.

    Args:
        quick: end within 50 s on 2 cores, where no peers are installed.
        interpreters: of environments that have peers (see tools/peers/README.md), which are looked
            for there and then in our own.
    """
    return measure_loader(QUICK if quick else FULL, (*interpreters, sys.executable))


def picture(result: BenchResult, path: Path) -> None:
    """Draw CPU per sample of every contender (`--picture`)."""
    draw_contenders(result.rows, path)


def measure_loader(bench: LoaderBench, interpreters: Sequence[str] = ()) -> BenchResult:
    """Measure what `bench` says, with the peers that the interpreters' environments have."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        recordings = record_all(folder, bench.episodes, size=bench.picture)
        h264 = recordings[0]
        save_plan(h264.lake, h264.windows)
        rows, window_ratios = _windows(recordings, bench, interpreters, folder / "peers")
        trajectories, over_loops = _trajectories(h264, bench)
        from_s3 = _from_s3(h264, bench, folder / "s3")
        starts = _starts(h264, bench)
        starting, steady = _training(h264, bench)
    imports = import_seconds(bench.starts)
    quality = h264.windows.header.quality
    ratios = {
        **over_loops,
        **window_ratios,
        **s3_ratios(from_s3),
        "data_wait_share_50ms": steady.share,
        "start_wait_s_50ms": starting.wait_s,
        "first_batch_s": median([s.total_s for s in starts["child"]]),
        **{
            f"first_batch_{mode}_s": median([s.total_s for s in runs])
            for mode, runs in starts.items()
            if mode != "child"
        },
        "import_loader_s": imports["import loader"],
        "import_pack_loader_s": imports["from loader import PackLoader"],
        **{f"q{k}": quality.shuffle[k] for k in (1, 16) if k in quality.shuffle},
        "near_duplicates": quality.near_duplicates,
        "padding": quality.padding,
    }
    return BenchResult(
        name="loader",
        rows=rows,
        tables={
            "whole trajectories": trajectories,
            "the same lake from an object store": s3_rows(from_s3),
            "starting": start_rows(starts),
            "a training step of 50 ms": [
                _wait_row("the plan's first", starting),
                _wait_row("those after them", steady),
            ],
        },
        ratios=ratios,
        notes=_notes(recordings, bench),
    )


def _windows(
    recordings: Sequence[Recorded], bench: LoaderBench, interpreters: Sequence[str], folder: Path
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The table's lines and the ratios of everybody who delivers window samples."""
    ours: dict[tuple[str, str], Callable[[], list[Stretch]]] = {}
    for number, recorded in enumerate(recordings):
        ours |= window_contenders(
            recorded,
            most_skip=bench.most_skip,
            count=bench.packs,
            stretches=bench.stretches,
            yuv=bench.everyone and number == 0,
            processes=number == 0,
        )
        if number == 0 or bench.everyone:
            ours |= face_contenders(
                recorded,
                skip=bench.others_skip,
                count=bench.others_packs,
                workers=bench.everyone and number == 0,
            )
    theirs, absent = peer_contenders(
        recordings, interpreters, folder, skip=bench.others_skip, count=bench.others_packs
    )
    contenders: dict[tuple[str, str], Callable[[], Sequence[Stretch | PeerRun]]] = {
        **ours,
        **{peer.key: peer.run for peer in theirs},
    }
    outcomes = take_turns(contenders, repetitions=bench.repetitions)
    quality = {r.coding.label: plan_quality(r.windows.header) for r in recordings}
    stretches = {key: [run for run in outcomes[key] if isinstance(run, Stretch)] for key in ours}
    rows = [
        stretch_row(name, video, runs, quality[video]) for (name, video), runs in stretches.items()
    ]
    ratios = window_ratios(stretches, recordings) | face_ratios(stretches, recordings)
    for peer in theirs:
        runs = [run for run in outcomes[peer.key] if isinstance(run, PeerRun)]
        rows.append(peer.row(runs))
        ratios |= peer.ratios(runs)
    rows += [
        {
            **dict.fromkeys(rows[0], "-"),
            "contender": peer.label,
            "video": NOT_INSTALLED,
        }
        for peer in absent
    ]
    return rows, ratios


def _trajectories(
    recorded: Recorded, bench: LoaderBench
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The table's lines and the ratios."""
    episode_ids = recorded.windows.episodes["episode_id"].to_pylist()
    first = sorted(episode_ids)[: bench.trajectory_episodes]
    plan = plan_trajectories(recorded.lake, first)
    steps = int(recorded.shape.lengths()[: len(first)].sum())
    timings = interleave(
        trajectory_contenders(recorded, plan, steps, others=bench.everyone),
        repetitions=bench.trajectory_repetitions,
        warm_up=bench.warm_up,
    )
    return trajectory_rows(timings, steps, plan.header), trajectory_ratios(timings)


def _from_s3(recorded: Recorded, bench: LoaderBench, folder: Path) -> dict[str, list[Stretch]]:
    before = min(bench.s3_packs, recorded.windows.header.num_steps // 4)
    packs_too = bench.everyone
    with served(recorded, folder, bench.delays_ms, packs_too=packs_too) as reached:
        contenders = s3_contenders(
            recorded, reached, skip=before, count=before, packs_too=packs_too
        )
        return take_turns(contenders, repetitions=bench.s3_repetitions)


def _starts(recorded: Recorded, bench: LoaderBench) -> dict[str, list[Start]]:
    plan_hash = recorded.windows.plan_hash
    modes = ("inline", "child") if bench.everyone else ("child",)
    begin = partial(start, recorded.lake, plan_hash, batches=bench.packs)
    return take_turns(
        {mode: partial(begin, process=mode) for mode in modes},
        repetitions=bench.starts,
    )


def _training(recorded: Recorded, bench: LoaderBench) -> tuple[Wait, Wait]:
    """The first steps of a plan, in which every run is new, and those after them."""
    first = steps_before(recorded.windows.header, bench.most_skip)
    with PackLoader(recorded.lake, recorded.windows) as loader:
        batches = iter(loader)
        return (
            simulate_training(batches, step_s=_STEP_S, steps=first),
            simulate_training(batches, step_s=_STEP_S, steps=bench.training_steps),
        )


def _wait_row(name: str, wait: Wait) -> dict[str, Any]:
    return {
        "steps of 50 ms": name,
        "number": wait.steps,
        "samples per s": wait.samples / wait.elapsed_s,
        "waited, s": wait.wait_s,
        "waited, share": wait.share,
    }


def _notes(recordings: Sequence[Recorded], bench: LoaderBench) -> tuple[str, ...]:
    height, width = bench.picture
    sets = "; ".join(
        f"{r.coding.label}: {r.shape.episodes} episodes, {int(r.shape.lengths().sum()):,} steps,"
        f" {r.frame_bytes:,.0f} bytes per frame"
        for r in recordings
    )
    turns = f"{bench.repetitions} rounds, contenders interleaved"
    if bench.stretches > 1:
        turns = f"{bench.stretches} stretches of each stream, one after the other"
    return (
        (
            f"recordings as LeRobot's recorder writes them, 2 cameras {width}x{height}: {sets};"
            " warm page cache, local disk"
        ),
        (
            "a window is 2 pictures and 50 actions; samples are torch tensors, uint8, channels"
            f" first; {bench.packs} batches of 32 timed after as many as a run lasts"
            f" (at most {bench.most_skip}); batches and run: of the plan, and for how many of them"
            " frames of a run are kept"
        ),
        (
            f"{turns}, median [least, most]; CPU and memory are of all processes, reads are read"
            " calls whatever the page cache held"
        ),
        (
            "PyAV's loops do nothing but decode, the loader also plans, reads, verifies and builds"
            " batches; arrays are compared with arrays of the same format, decode alone (which"
            " converts nothing) with YUV"
        ),
    )
