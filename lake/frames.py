"""Pictures of a camera by step."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import CorruptDataError, VideoError
from lake.find import find_episode
from lake.pixels import PixelConverter, yuv420p_bytes
from lake.read_video import ByteRange, EpisodeVideos, read_ranges, read_video_indexes
from lake.store import Lake
from lake.video_decode import FrameDecoder
from lake.video_index import VideoIndex
from lake.video_runs import decode_runs


def read_frames(
    lake: Lake,
    episode_id: str,
    camera: str,
    steps: Sequence[int],
    *,
    pixel_format: Literal["rgb24", "yuv420p"] = "rgb24",
) -> NDArray[np.uint8]:
    """What a camera showed at some steps of an episode.

    Reads and decodes only the packets that are needed, in one request; for whole data sets use
    the loader.

    Args:
        lake: where.
        episode_id: which episode.
        camera: name of the camera.
        steps: N steps, any order, repeats allowed.
        pixel_format: of the result.

    Returns:
        uint8 [N, 3, height, width] for `rgb24` (channels first), and for `yuv420p` uint8
        [N, bytes]: the planes Y, U, V one after the other.

    Raises:
        EpisodeNotFoundError: no such episode.
        VideoError: no such camera, a step outside the episode, or a step without a picture.
        CorruptDataError: packets do not match their checksum.
    """
    videos = read_video_indexes(lake, [find_episode(lake, episode_id)])[0]
    where = f"episode {episode_id}, camera {camera}"
    index = videos.cameras.get(camera)
    if index is None:
        has = ", ".join(videos.cameras) or "none"
        raise VideoError(f"{where}: the episode has no such camera; it has {has}")
    frames = _frames_of_steps(index, np.asarray(steps, np.int64).reshape(-1), where)
    converter = PixelConverter()
    pictures: dict[int, NDArray[np.uint8]] = {}
    try:
        for ordinal, frame in _decoded(lake, videos, camera, frames):
            pictures[ordinal] = _pixels(converter, frame, pixel_format)
    except (VideoError, CorruptDataError) as error:
        raise type(error)(f"{where}: {error}") from error
    if not pictures:
        blank = (0, 3, index.height, index.width)
        planes = (0, yuv420p_bytes(index.height, index.width))
        return np.empty(blank if pixel_format == "rgb24" else planes, np.uint8)
    return np.stack([pictures[ordinal] for ordinal in frames.tolist()])


def _frames_of_steps(index: VideoIndex, steps: NDArray[np.int64], where: str) -> NDArray[np.int32]:
    count = len(index.step_to_frame)
    outside = steps[(steps < 0) | (steps >= count)]
    if len(outside):
        raise VideoError(f"{where}: step {outside[0]} is not among the episode's {count} steps")
    frames = index.step_to_frame[steps]
    if (frames < 0).any():
        raise VideoError(
            f"{where}: there is no picture for step {steps[frames < 0][0]}; ask for other steps"
        )
    return frames


def _decoded(
    lake: Lake, videos: EpisodeVideos, camera: str, frames: NDArray[np.int32]
) -> Iterator[tuple[int, VideoFrame]]:
    index = videos.cameras[camera]
    offsets = index.packet_offsets() + videos.base_offsets[camera]
    runs = decode_runs(index, frames)
    ranges = [
        ByteRange(
            videos.address,
            int(offsets[run.first_packet]),
            int(offsets[run.stop_packet] - offsets[run.first_packet]),
        )
        for run in runs
    ]
    decoder = FrameDecoder()
    for run, data in zip(runs, read_ranges(lake, ranges), strict=True):
        yield from decoder.decode(index, run, data)


def _pixels(
    converter: PixelConverter, frame: VideoFrame, pixel_format: Literal["rgb24", "yuv420p"]
) -> NDArray[np.uint8]:
    height, width = converter.output_size(frame)
    if pixel_format == "rgb24":
        picture = np.empty((3, height, width), np.uint8)
        converter.rgb(frame, picture)
        return picture
    planes = np.empty(yuv420p_bytes(height, width), np.uint8)
    converter.yuv420p(frame, planes)
    return planes
