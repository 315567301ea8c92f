"""Which pictures a pack shows, and where each goes: computed before anything is decoded."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loader.assembly.segments import starts_of
from loader.errors import LoaderError
from loader.fetch.episodes import CameraStream, EpisodeData
from loader.fetch.plan_rows import PackRow


@dataclass(frozen=True, kw_only=True)
class ImageTable:
    """The pictures of one pack in prefix order: span, observed step, camera.

    Attributes:
        span, step, camera, frame: int32 [I], row of the span in the pack, step of the episode,
            camera of the plan, display ordinal in its stream.
        nth: int32 [I], number of the picture inside its span.
        stream: int32 [I], row of `streams`.
        streams: the camera streams that the pack touches.
        lost: of them, those of episodes whose row is damaged; none of their pictures is decoded.
    """

    span: NDArray[np.int32]
    step: NDArray[np.int32]
    camera: NDArray[np.int32]
    frame: NDArray[np.int32]
    nth: NDArray[np.int32]
    stream: NDArray[np.int32]
    streams: tuple[CameraStream, ...]
    lost: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def rows(self) -> dict[CameraStream, dict[int, list[int]]]:
        """Stream -> frame -> rows of the table that show it; without the lost ones."""
        rows: dict[int, dict[int, list[int]]] = {}
        pairs = zip(self.stream.tolist(), self.frame.tolist(), strict=True)
        for row, (stream, frame) in enumerate(pairs):
            rows.setdefault(stream, {}).setdefault(frame, []).append(row)
        sound = {stream: frames for stream, frames in rows.items() if stream not in self.lost}
        return {self.streams[stream]: frames for stream, frames in sound.items()}


def image_table(row: PackRow, episodes: Mapping[int, EpisodeData]) -> ImageTable:
    """The pictures of a pack.

    Raises:
        LoaderError: the lake shows another number of pictures than the plan counted.
    """
    numbers: dict[int, int] = {}
    local = np.asarray(
        [numbers.setdefault(e, len(numbers)) for e in row.episode.tolist()], np.int32
    )
    data = [episodes[episode] for episode in numbers]
    # Of each observed step the frame of every camera, [S, C]; -1 where there is none.
    shown = _stacked(
        [
            _shown(data[number], range(start, stop, stride), images)
            for number, start, stop, stride, images in zip(
                local.tolist(),
                row.start.tolist(),
                row.stop.tolist(),
                row.stride.tolist(),
                row.images.tolist(),
                strict=True,
            )
        ]
    )
    observation, column = np.nonzero(shown >= 0)
    observed = row.observed
    span_of = np.repeat(np.arange(len(row), dtype=np.int32), observed)
    nth_of = np.arange(len(span_of)) - starts_of(observed)[span_of]
    step_of = (row.start[span_of] + nth_of * row.stride[span_of]).astype(np.int32)
    span = span_of[observation]
    cameras = _stacked([np.asarray([list(each.cameras)], np.int32) for each in data])
    counts = np.asarray([len(each.cameras) for each in data], np.int32)
    streams = [(stream, each.damage) for each in data for stream in each.cameras.values()]
    table = ImageTable(
        span=span,
        step=step_of[observation],
        camera=cameras[local[span], column],
        frame=shown[observation, column],
        nth=counted(span, len(row)),
        stream=(starts_of(counts)[local[span]] + column).astype(np.int32),
        streams=tuple(stream for stream, _ in streams),
        lost=frozenset(n for n, (_, damage) in enumerate(streams) if damage is not None),
    )
    _check_counts(row, table, episodes)
    return table


def _shown(data: EpisodeData, steps: range, images: int) -> NDArray[np.int32]:
    """int32 [S, C]: the frame of each camera at each step, -1 for none."""
    shown = data.shown[steps.start : steps.stop : steps.step]
    if data.damage is None or np.count_nonzero(shown >= 0) == images:
        return shown
    # With the index the knowledge is gone which steps lack a picture; how many there are is not.
    stand_ins = np.full(shown.size, -1, np.int32)
    stand_ins[:images] = 0
    return stand_ins.reshape(shown.shape)


def _stacked(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """int32 [sum of rows, most columns]: the parts below each other, -1 to the right."""
    width = max((part.shape[1] for part in parts), default=0)
    wide = [
        part
        if part.shape[1] == width
        else np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1)
        for part in parts
    ]
    return np.concatenate([np.empty((0, width), np.int32), *wide])


def counted(span: NDArray[np.int32], num_spans: int) -> NDArray[np.int32]:
    """Number of each element inside its run of equal, ascending values."""
    counts = np.bincount(span, minlength=num_spans)
    first = np.cumsum(counts) - counts
    return (np.arange(len(span)) - first[span]).astype(np.int32)


def _check_counts(row: PackRow, table: ImageTable, episodes: Mapping[int, EpisodeData]) -> None:
    counts = np.bincount(table.span, minlength=len(row))
    wrong = np.flatnonzero(counts != row.images)
    if wrong.size:
        span = int(wrong[0])
        streams = episodes[int(row.episode[span])].cameras.values()
        where = next((stream.label for stream in streams), "an episode without cameras")
        raise LoaderError(
            f"{where}: steps [{row.start[span]}, {row.stop[span]}) show {counts[span]} pictures,"
            f" the plan counted {row.images[span]}; make the plan again"
        )
