"""Whole trajectories against plain PyAV loops over the same frames, contiguous, one thread each.

- `PyAV, RGB arrays`: `frame.to_ndarray(format="rgb24")` (channels last; the loader delivers
  channels first), each array thrown away before the next;
- `PyAV, RGB tuned`: the best loop we know: a kept scaler to planar RGB, its planes copied into the
  array [T, 3, h, w] of an episode, which is used again for the next one;
- `PyAV, YUV arrays`: `frame.to_ndarray()`, 4:2:0;
- `PyAV, decode alone`: the frames are thrown away as the decoder gives them: what nobody undercuts.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from lake import Lake
from loader import PackLoader
from packing.plan import Plan
from packing.plan_header import PlanHeader
from tools.bench.framework import Timing, spread
from tools.bench.lerobot_data import DatasetShape
from tools.bench.loader_data import Recorded

RGB: Final = "trajectories, RGB"
YUV: Final = "trajectories, YUV"
PYAV_RGB: Final = "PyAV, RGB arrays"
PYAV_TUNED: Final = "PyAV, RGB tuned"
PYAV_YUV: Final = "PyAV, YUV arrays"
PYAV_DECODE: Final = "PyAV, decode alone"

_GBR: Final = (2, 0, 1)  # where R, G and B lie among the planes of gbrp


def trajectory_contenders(
    recorded: Recorded, plan: Plan, steps: int, *, others: bool
) -> dict[str, Callable[[], object]]:
    """Name -> a call that delivers every frame of the first episodes once.

    Args:
        recorded: the dataset and its lake.
        plan: of trajectories, of the first episodes of the dataset.
        steps: of those episodes.
        others: also the loops that no aim names.
    """
    shape = recorded.shape
    read = partial(_pyav, recorded, steps)
    stream = partial(_stream, recorded.lake, plan, steps)
    loops: dict[str, Callable[[], object]] = {
        PYAV_RGB: partial(read, lambda frame: frame.to_ndarray(format="rgb24")),
        PYAV_DECODE: partial(read, lambda frame: frame),
    }
    if others:
        loops[PYAV_TUNED] = lambda: read(_to_planar(shape))
        loops[PYAV_YUV] = partial(read, lambda frame: frame.to_ndarray())
    return {
        **loops,
        RGB: partial(stream, image_format="rgb"),
        YUV: partial(stream, image_format="yuv"),
    }


def trajectory_ratios(timings: Mapping[str, Sequence[Timing]]) -> dict[str, float]:
    """Speed over PyAV's loops: the median over rounds, of CPU within a round."""
    # Decode alone converts nothing, so what is compared with it does not either.
    ratios = {
        "steps_over_pyav_arrays": (PYAV_RGB, RGB),
        "steps_over_pyav_tuned": (PYAV_TUNED, RGB),
        "steps_over_pyav_yuv": (PYAV_YUV, YUV),
        "steps_over_pyav_decode": (PYAV_DECODE, YUV),
        "steps_over_pyav_decode_rgb": (PYAV_DECODE, RGB),
    }
    return {
        name: median(
            [
                loop.cpu_s / streamed.cpu_s
                for loop, streamed in zip(timings[limit], timings[ours], strict=True)
            ]
        )
        for name, (limit, ours) in ratios.items()
        if limit in timings
    }


def trajectory_rows(
    timings: Mapping[str, Sequence[Timing]], steps: int, header: PlanHeader
) -> list[dict[str, Any]]:
    """Lines of the table."""
    quality = header.quality
    return [
        {
            "contender": name,
            "CPU ms per step": spread([run.cpu_s / steps * 1e3 for run in runs]),
            "steps per s": spread([steps / run.wall_s for run in runs]),
            "padding": f"{quality.padding:.2%}" if name in (RGB, YUV) else "-",
            "Q1": f"{quality.shuffle[1]:.2f}" if name in (RGB, YUV) else "-",
        }
        for name, runs in timings.items()
    ]


def _stream(lake: Lake, plan: Plan, steps: int, **options: Any) -> None:  # noqa: ANN401  # checked by PackLoader
    """Stream a whole plan; every step exactly once."""
    with PackLoader(lake, plan, framework="numpy", process="inline", **options) as loader:
        for _ in loader:
            pass
        if loader.metrics.steps != steps:
            raise RuntimeError(f"streamed {loader.metrics.steps} of {steps} steps")


def _pyav(recorded: Recorded, steps: int, deliver: Callable[[av.VideoFrame], object]) -> None:
    """Decode the first frames of every camera's file, which are those of the first episodes."""
    for path in sorted(recorded.root.rglob("*.mp4")):
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_count = 1
            for frame in itertools.islice(container.decode(stream), steps):
                deliver(frame)


def _to_planar(shape: DatasetShape) -> Callable[[av.VideoFrame], object]:
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
