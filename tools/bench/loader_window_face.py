"""The single-sample face: `loader.Window` in torch's DataLoader, in the order of the plan.

What a trainer written for LeRobotDataset gets by changing one import, on the same terms as
LeRobot's own DataLoader: batches of 32, the same samples in the same order, dicts of uint8 tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from tools.bench.loader_data import CHUNK, WINDOWS_PER_PACK, Recorded, planned_order
from tools.bench.stretch import Stretch, measure_stretches

FACE: Final = "Window in a DataLoader"


def face_contenders(
    recorded: Recorded, *, skip: int, count: int, workers: bool
) -> dict[tuple[str, str], Callable[[], list[Stretch]]]:
    """(contender, label of the video) -> a call that times it.

    Args:
        recorded: what is read.
        skip: batches before the timed ones.
        count: batches timed.
        workers: also with two workers.
    """
    label = recorded.coding.label
    time = partial(_time, recorded, skip=skip, count=count)
    found: dict[tuple[str, str], Callable[[], list[Stretch]]] = {
        (FACE, label): partial(time, workers=0)
    }
    if workers:
        found[f"{FACE}, 2 workers", label] = partial(time, workers=2)
    return found


def face_ratios(
    stretches: Mapping[tuple[str, str], Sequence[Stretch]], recordings: Sequence[Recorded]
) -> dict[str, float]:
    """CPU per sample without workers, of every coding that was measured."""
    return {
        f"face_cpu_ms_{coding.key}": median([s.cpu_ms for s in stretches[FACE, coding.label]])
        for coding in (recorded.coding for recorded in recordings)
        if (FACE, coding.label) in stretches
    }


def _time(recorded: Recorded, *, workers: int, skip: int, count: int) -> list[Stretch]:
    from torch.utils.data import DataLoader

    from loader.windows.window import Window

    shape = recorded.shape
    order = planned_order(recorded.windows, shape, packs=skip + count + 2 * workers + 1)
    ends = shape.lengths().cumsum()
    indices = ends[order[:, 0]] - shape.lengths()[order[:, 0]] + order[:, 1]
    window = Window(
        recorded.lake,
        {"action": [step / shape.fps for step in range(CHUNK)]},
        image_dtype="uint8",
    )

    def stream() -> Any:  # noqa: ANN401  # torch's iterator
        return iter(
            DataLoader(
                window,
                batch_size=WINDOWS_PER_PACK,
                sampler=indices.tolist(),
                num_workers=workers,
                prefetch_factor=2 if workers else None,
                multiprocessing_context="spawn" if workers else None,
            )
        )

    return measure_stretches(
        stream, skip=skip, count=count, size=lambda batch: len(batch["frame_index"])
    )
