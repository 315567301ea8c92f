"""How near the loader comes to the limit that decoding sets, on the same video in the same order.

Trajectories (whole episodes, every frame of both cameras) against plain PyAV loops that decode the
source files contiguously, one thread per stream, and deliver arrays of the same format:

- `PyAV, RGB arrays`: the plain loop, `frame.to_ndarray(format="rgb24")` (channels last; the loader
  delivers channels first), each array thrown away before the next;
- `PyAV, RGB tuned`: the best loop we know: a kept scaler to planar RGB, its planes copied into the
  array [T, 3, h, w] of an episode, which is used again for the next one (like the loader's buffers,
  it is made within the time that is measured);
- `PyAV, YUV arrays`: `frame.to_ndarray()`, 4:2:0 (not in a quick run).

Window samples (two cameras, a chunk of 50 actions) are streamed from a shuffled plan; CPU includes
plan reading, storage, checksums, decoding, conversion and batch assembly, and the decode process
where there is one. They are also streamed from materialised packs: `materialised` are the recorded
packets, `h264 224` pictures encoded anew (not in a quick run), against `resized 224` from the
episodes.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from tools.bench.framework import BenchResult, Timing, interleave, spread
from tools.bench.lerobot_data import DatasetShape, write_lerobot_v3

_GBR: Final = (2, 0, 1)  # where R, G and B lie among the planes of gbrp
_IMAGE_TOKENS: Final = 64
_BUDGET: Final = 8192
_SMALL: Final = (224, 224)


def run(quick: bool) -> BenchResult:  # noqa: FBT001  # the one signature of all benches
    """Measure; `quick` uses fewer episodes and 3 repetitions in place of 5."""
    from ingest.pipeline import ingest_sources
    from lake import create_lake
    from loader.materialize import materialize
    from loader.materialized_report import report_of
    from loader.materialized_settings import MaterializedSettings
    from packing.layout import TokenLayout
    from packing.make_plan import make_plan
    from packing.plan_store import save_plan
    from packing.trajectory_spans import TrajectorySpans
    from packing.window_spans import WindowSpans

    shape = DatasetShape(episodes=6 if quick else 50)
    repetitions = 3 if quick else 5
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        root = write_lerobot_v3(Path(folder) / "dataset", shape)
        lake = create_lake(Path(folder) / "bench.lake")
        ingest_sources([root], lake)
        lake.refresh()
        layout = TokenLayout(name="bench", image_tokens=_IMAGE_TOKENS)
        windows = make_plan(
            lake,
            spans=WindowSpans(horizon=50),
            layout=layout,
            budget_tokens=_BUDGET,
            slots_per_step=1,
        )
        trajectories = make_plan(
            lake,
            spans=TrajectorySpans(),
            layout=TokenLayout(),
            budget_tokens=_BUDGET // 2,
            slots_per_step=1,
        )
        steps = int(shape.lengths().sum())
        save_plan(lake, windows)
        copied = report_of(materialize(lake, windows, workers=0), windows)
        work: dict[str, Callable[[], object]] = {
            "PyAV, RGB arrays": lambda: _pyav(root, _to_rgb),
            "PyAV, RGB tuned": lambda: _pyav(root, _to_chw(shape)),
            "trajectories": lambda: _stream(lake, trajectories, steps, process="inline"),
            "windows": lambda: _stream(lake, windows, steps, process="inline"),
            "windows, own process": lambda: _stream(lake, windows, steps, process="child"),
            "windows, materialised": lambda: _stream(
                lake, windows, steps, process="inline", materialized=True
            ),
        }
        if not quick:
            encoded = MaterializedSettings(codec="h264", image_size=_SMALL)
            materialize(lake, windows, encoded, workers=os.cpu_count() or 1)
            work["windows, resized 224"] = lambda: _stream(
                lake, windows, steps, process="inline", image_size=_SMALL
            )
            work["windows, h264 224"] = lambda: _stream(
                lake, windows, steps, process="inline", materialized=encoded.name
            )
            work["PyAV, YUV arrays"] = lambda: _pyav(root, _to_yuv)
            work["trajectories, YUV"] = lambda: _stream(
                lake, trajectories, steps, process="inline", image_format="yuv"
            )
        timings = interleave(work, repetitions=repetitions, warm_up=not quick)
        first_batch_s = _first_batch(lake, windows)
    starts = [_import_seconds("import loader") for _ in range(repetitions)]
    uses = [_import_seconds("from loader import PackLoader") for _ in range(repetitions)]
    cpu_ms = {name: statistics.median(_per_step(runs, steps)) for name, runs in timings.items()}
    ratios = {
        "steps_over_pyav_arrays": cpu_ms["PyAV, RGB arrays"] / cpu_ms["trajectories"],
        "steps_over_tuned_pyav": cpu_ms["PyAV, RGB tuned"] / cpu_ms["trajectories"],
        "window_cpu_ms_h264": cpu_ms["windows"],
        "window_cpu_ms_h264_process": cpu_ms["windows, own process"],
        "window_cpu_ms_materialised": cpu_ms["windows, materialised"],
        "materialised_amplification": copied.amplification,
        "import_loader_s": statistics.median(starts),
        "import_pack_loader_s": statistics.median(uses),
        "first_batch_s": first_batch_s,
        "q1": windows.header.quality.shuffle[1],
        "near_duplicates": windows.header.quality.near_duplicates,
        "padding": windows.header.quality.padding,
    }
    if not quick:
        ratios["steps_over_pyav_yuv"] = cpu_ms["PyAV, YUV arrays"] / cpu_ms["trajectories, YUV"]
    return BenchResult(
        name="loader",
        rows=_rows(timings, steps, {"windows": windows, "trajectories": trajectories}),
        ratios=ratios,
        notes=_notes(shape, steps, repetitions),
    )


def _rows(
    timings: Mapping[str, Sequence[Timing]], steps: int, plans: Mapping[str, Any]
) -> list[dict[str, Any]]:
    rows = []
    for name, runs in timings.items():
        plan = plans.get(name.split(",")[0])
        quality = plan.header.quality if plan else None
        rows.append(
            {
                "contender": name,
                "CPU ms per step": spread(_per_step(runs, steps)),
                "steps per CPU s": spread([steps / t.cpu_s for t in runs]),
                "steps per s": spread([steps / t.wall_s for t in runs]),
                "padding": f"{quality.padding:.2%}" if quality else "-",
                "Q1": f"{quality.shuffle[1]:.2f}" if quality else "-",
                "near duplicates": f"{quality.near_duplicates:.2f}" if quality else "-",
            }
        )
    return rows


def _notes(shape: DatasetShape, steps: int, repetitions: int) -> tuple[str, ...]:
    return (
        (
            f"{shape.episodes} episodes, {steps} steps, 2 cameras {shape.width}x{shape.height}"
            f" H.264 GOP {shape.gop}; a window is one step, so every contender delivers each frame"
            f" of both cameras once; {repetitions} rounds interleaved, median [least, most]; warm"
            " page cache, local disk"
        ),
        (
            "uint8 RGB, channels first (plain PyAV: channels last); steps_over_pyav_arrays is"
            " against the plain loop, steps_over_tuned_pyav against the tuned one; PyAV's loops do"
            " nothing but decode, the loader also plans, reads, verifies and builds batches"
        ),
        (
            "CPU of `own process` holds that process's start-up, about 0.5 s per run; Q1 is the"
            " shuffle quality over one step (1 = global shuffle), and is high on few episodes"
        ),
    )


def _per_step(runs: Sequence[Timing], steps: int) -> list[float]:
    """CPU milliseconds per step of each run."""
    return [run.cpu_s / steps * 1e3 for run in runs]


def _stream(lake: Any, plan: Any, steps: int, **options: Any) -> None:  # noqa: ANN401  # imported late
    """Stream a whole plan; every window or step exactly once."""
    from loader import PackLoader

    with PackLoader(lake, plan, framework="numpy", **options) as loader:
        for _ in loader:
            pass
        if loader.metrics.steps != steps:
            raise RuntimeError(f"streamed {loader.metrics.steps} of {steps} steps")


def _pyav(root: Path, deliver: Callable[[av.VideoFrame], object]) -> None:
    for path in sorted(root.rglob("*.mp4")):
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_count = 1
            for frame in container.decode(stream):
                deliver(frame)


def _to_chw(shape: DatasetShape) -> Callable[[av.VideoFrame], object]:
    scaler = VideoReformatter()
    longest = int(shape.lengths().max())
    episode = np.zeros((longest, 3, shape.height, shape.width), np.uint8)
    turn = itertools.count()

    def deliver(frame: av.VideoFrame) -> None:
        out = episode[next(turn) % longest]
        planes = scaler.reformat(frame, format="gbrp", threads=1).planes
        for channel, plane in enumerate(_GBR):
            rows: NDArray[np.uint8] = np.frombuffer(memoryview(planes[plane]), np.uint8)
            out[channel] = rows.reshape(-1, planes[plane].line_size)[: shape.height, : shape.width]

    return deliver


def _to_rgb(frame: av.VideoFrame) -> object:
    return frame.to_ndarray(format="rgb24")


def _to_yuv(frame: av.VideoFrame) -> object:
    return frame.to_ndarray()


def _first_batch(lake: Any, plan: Any) -> float:  # noqa: ANN401  # imported late
    """Wall seconds from asking for the first batch to having it, decode process included."""
    from loader import PackLoader

    with PackLoader(lake, plan, framework="numpy") as loader:
        begin = time.perf_counter()
        next(iter(loader))
        return time.perf_counter() - begin


def _import_seconds(code: str) -> float:
    """Wall seconds of a fresh interpreter that runs `code`, over one that runs nothing."""
    seconds = []
    for text in ("pass", code):
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", text], check=True, cwd=Path(__file__).parents[2], env=os.environ
        )
        seconds.append(time.perf_counter() - begin)
    return max(0.0, seconds[1] - seconds[0])
