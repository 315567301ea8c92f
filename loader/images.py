"""Which pictures a pack shows, and where each goes: computed before anything is decoded."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loader.episodes import CameraStream, EpisodeData
from loader.errors import LoaderError
from loader.plan_rows import PackRow


@dataclass(frozen=True, kw_only=True)
class ImageTable:
    """The pictures of one pack in prefix order: span, observed step, camera.

    Attributes:
        span, step, camera, frame: int32 [I], row of the span in the pack, step of the episode,
            camera of the plan, display ordinal in its stream.
        nth: int32 [I], number of the picture inside its span.
        stream: int32 [I], row of `streams`.
        streams: the camera streams that the pack touches.
    """

    span: NDArray[np.int32]
    step: NDArray[np.int32]
    camera: NDArray[np.int32]
    frame: NDArray[np.int32]
    nth: NDArray[np.int32]
    stream: NDArray[np.int32]
    streams: tuple[CameraStream, ...]

    def __len__(self) -> int:
        return len(self.frame)

    def frames_by_stream(self) -> dict[CameraStream, NDArray[np.int32]]:
        """int32 [n] sorted frames shown of each stream, each once."""
        order = np.lexsort((self.frame, self.stream))
        bounds = np.searchsorted(self.stream[order], np.arange(len(self.streams) + 1))
        frames = self.frame[order]
        return {
            stream: np.unique(frames[bounds[row] : bounds[row + 1]])
            for row, stream in enumerate(self.streams)
        }


def image_table(row: PackRow, episodes: Mapping[int, EpisodeData]) -> ImageTable:
    """The pictures of a pack.

    Raises:
        LoaderError: the lake shows another number of pictures than the plan counted.
    """
    spans, steps, frames, cameras, streams = [], [], [], [], []
    numbers: dict[CameraStream, int] = {}
    for span in range(len(row)):
        data = episodes[int(row.episode[span])]
        if not data.cameras:
            continue
        observed = np.arange(row.start[span], row.stop[span], row.stride[span], dtype=np.int32)
        # [observed, cameras], read row by row: step after step, camera after camera.
        shown = np.stack(
            [stream.index.step_to_frame[observed] for stream in data.cameras.values()], axis=1
        )
        rows = [numbers.setdefault(stream, len(numbers)) for stream in data.cameras.values()]
        step_at, camera_at = np.nonzero(shown >= 0)
        frames.append(shown[step_at, camera_at])
        steps.append(observed[step_at])
        cameras.append(np.fromiter(data.cameras, np.int32)[camera_at])
        streams.append(np.asarray(rows, np.int32)[camera_at])
        spans.append(np.full(len(step_at), span, np.int32))
    table = ImageTable(
        span=_joined(spans),
        step=_joined(steps),
        camera=_joined(cameras),
        frame=_joined(frames),
        nth=_counted(_joined(spans), len(row)),
        stream=_joined(streams),
        streams=tuple(numbers),
    )
    _check_counts(row, table, episodes)
    return table


def _joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _counted(span: NDArray[np.int32], num_spans: int) -> NDArray[np.int32]:
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
