"""One picture of an episode: the quickest way to see an upside-down or red-blue swapped camera."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
from numpy.typing import NDArray

from ingest.errors import IngestError
from lake.episode import CameraVideo, Episode
from lake.video_decode import FrameDecoder
from lake.video_runs import decode_runs

_CELL_HEIGHT: Final = 180
_GAP: Final = 4


def write_contact_sheet(episode: Episode, path: Path) -> tuple[str, ...]:
    """Write a PNG: one row per camera, its first, middle and last frame.

    Returns:
        The cameras from top to bottom.

    Raises:
        IngestError: the episode has no camera.
    """
    if not episode.cameras:
        raise IngestError(f"{episode.episode_id}: has no camera, so there is no picture to write")
    rows = [_frames(video) for video in episode.cameras.values()]
    _write_png(path, _stack([_stack(row, axis=1) for row in rows], axis=0))
    return tuple(episode.cameras)


def _frames(video: CameraVideo) -> list[NDArray[Any]]:
    """First, middle and last shown frame, scaled to one height; RGB [H, W, 3]."""
    shown = np.unique(video.index.step_to_frame[video.index.step_to_frame >= 0])
    wanted = shown[[0, len(shown) // 2, -1]]
    offsets, data = video.index.packet_offsets(), memoryview(video.payload)
    decoder = FrameDecoder()
    pictures: dict[int, NDArray[Any]] = {}
    width = max(2, round(video.index.width * _CELL_HEIGHT / video.index.height / 2) * 2)
    for run in decode_runs(video.index, wanted):
        packets = data[offsets[run.first_packet] : offsets[run.stop_packet]]
        for number, frame in decoder.decode(video.index, run, packets):
            scaled = frame.reformat(width=width, height=_CELL_HEIGHT, format="rgb24")
            pictures[number] = scaled.to_ndarray()
    return [pictures[int(number)] for number in wanted]


def _stack(pictures: Sequence[NDArray[Any]], axis: int) -> NDArray[np.uint8]:
    """Pictures side by side (axis 1) or below each other (axis 0), gaps and padding black."""
    across = 1 - axis
    side = max(picture.shape[across] for picture in pictures)
    parts: list[NDArray[Any]] = []
    for picture in pictures:
        room = [(0, 0), (0, 0), (0, 0)]
        room[across] = (0, side - picture.shape[across])
        room[axis] = (_GAP if parts else 0, 0)
        parts.append(np.pad(picture, room))
    return np.concatenate(parts, axis=axis)


def _write_png(path: Path, picture: NDArray[np.uint8]) -> None:
    height, width = picture.shape[:2]
    encoder = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "rgb24"
    encoder.time_base = Fraction(1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    frame.pts = 0
    try:
        path.write_bytes(b"".join(bytes(packet) for packet in encoder.encode(frame)))
    except OSError as error:
        raise IngestError(f"{path}: cannot be written ({error})") from error
