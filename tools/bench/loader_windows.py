"""Window samples from a shuffled plan: the contenders that are ours, and the rows of the table."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from loader import PackLoader
from packing.plan_header import PlanHeader
from tools.bench.framework import spread
from tools.bench.loader_data import Recorded
from tools.bench.stretch import Stretch, measure_stretches

RGB: Final = "windows, RGB"
YUV: Final = "windows, YUV"
TWO_PROCESSES: Final = "windows, RGB, 2 decode processes"


def stream_windows(
    recorded: Recorded,
    *,
    most_skip: int,
    count: int,
    stretches: int = 1,
    **options: Any,  # noqa: ANN401  # checked by PackLoader
) -> list[Stretch]:
    """Time packs of windows as torch tensors, in steady state.

    As many packs as a run of windows lasts come before: from then on as much is decoded for later
    packs as was decoded for the timed ones by earlier packs.

    Args:
        recorded: what is streamed.
        most_skip: at most so many packs come before.
        count: packs timed per stretch; fewer where the plan ends.
        stretches: that follow each other.
        **options: of `PackLoader`.
    """
    header = recorded.windows.header
    before = steps_before(header, most_skip)
    with PackLoader(recorded.lake, recorded.windows, **options) as loader:
        return measure_stretches(
            lambda: iter(loader),
            skip=before,
            count=min(count, (header.num_steps - before) // stretches),
            stretches=stretches,
            size=lambda batch: int(batch.num_spans),
        )


def steps_before(header: PlanHeader, most: int) -> int:
    """Steps before the steady state: as many as a run lasts, `most`, or half of the plan."""
    return max(1, min(header.run_steps, most, header.num_steps // 2))


def window_contenders(
    recorded: Recorded, *, most_skip: int, count: int, stretches: int, yuv: bool, processes: bool
) -> dict[tuple[str, str], Callable[[], list[Stretch]]]:
    """(contender, label of the video) -> a call that times it.

    Args:
        recorded: what is streamed.
        most_skip: see `stream_windows`.
        count: see `stream_windows`.
        stretches: see `stream_windows`.
        yuv: also as YUV.
        processes: also with two decode processes, over twice the packs.
    """
    time = partial(stream_windows, recorded, most_skip=most_skip, stretches=stretches)
    label = recorded.coding.label
    found: dict[tuple[str, str], Callable[[], list[Stretch]]] = {
        (RGB, label): partial(time, count=count, process="inline")
    }
    if yuv:
        found[YUV, label] = partial(time, count=count, process="inline", image_format="yuv")
    if processes:
        found[TWO_PROCESSES, label] = partial(time, count=2 * count, num_workers=2)
    return found


def window_ratios(
    windows: Mapping[tuple[str, str], Sequence[Stretch]], recordings: Sequence[Recorded]
) -> dict[str, float]:
    """CPU per window of every coding, and the speed of two decode processes on the first."""
    ratios = {
        f"window_cpu_ms_{recorded.coding.key}": median(
            [s.cpu_ms for s in windows[RGB, recorded.coding.label]]
        )
        for recorded in recordings
    }
    first = recordings[0].coding
    fast = windows[TWO_PROCESSES, first.label]
    ratios[f"window_samples_per_s_{first.key}"] = median([s.samples_per_s for s in fast])
    if (YUV, first.label) in windows:
        yuv = windows[YUV, first.label]
        ratios[f"window_cpu_ms_{first.key}_yuv"] = median([s.cpu_ms for s in yuv])
    return ratios


def stretch_row(
    contender: str, video: str, stretches: Sequence[Stretch], quality: Mapping[str, Any]
) -> dict[str, Any]:
    """A line of the table."""
    return {
        "contender": contender,
        "video": video,
        "CPU ms per sample": spread([s.cpu_ms for s in stretches]),
        "samples per s": spread([s.samples_per_s for s in stretches]),
        "first batch, s": spread([s.first_batch_s for s in stretches]),
        "memory, MB": spread([s.memory_mb for s in stretches]),
        "read, kB per sample": spread([s.read_bytes / s.samples / 1e3 for s in stretches]),
        "read calls per sample": spread([s.reads / s.samples for s in stretches]),
        **quality,
    }


def plan_quality(header: PlanHeader) -> dict[str, Any]:
    """What a reader must know of a plan beside any speed: its size, and how well it shuffles."""
    shuffle = header.quality.shuffle
    return {
        "Q1": f"{shuffle[1]:.2f}",
        "Q16": f"{shuffle[16]:.2f}" if 16 in shuffle else "-",
        "near duplicates": f"{header.quality.near_duplicates:.3f}",
        "batches": f"{header.num_steps:,}",
        "run": f"{header.run_steps}",
    }
