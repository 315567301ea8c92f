"""Pictures by step equal those of a plain decode of the same packets."""

from collections.abc import Callable
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from lake import CameraVideo, Episode, EpisodeWriter, Lake, read_frames
from lake.errors import EpisodeNotFoundError, VideoError
from lake.video_encode import encode_frames
from tests.episodes import make_episode, make_filmed_episode, moving_pictures

STEPS = 30
HEIGHT, WIDTH = 48, 64


def camera(codec: str, step_to_frame: NDArray[np.int32]) -> CameraVideo:
    options: dict[str, Any] = {"codec": codec, "fps": 10, "step_to_frame": step_to_frame}
    return encode_frames(moving_pictures(int(step_to_frame.max()) + 1), **options)


def plain_decode(video: CameraVideo) -> list[NDArray[np.uint8]]:
    """Every picture in display order, by one PyAV decoder fed from the first packet on."""
    decoder = av.CodecContext.create(video.index.codec, "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.extradata = video.index.extradata or None
    offsets = video.index.packet_offsets().tolist()
    frames: list[av.VideoFrame] = []
    for number, ordinal in enumerate(video.index.packet_frame.tolist()):
        packet = av.Packet(bytes(video.payload)[offsets[number] : offsets[number + 1]])
        packet.pts = ordinal
        frames += decoder.decode(packet)
    frames += decoder.decode(None)
    frames.sort(key=lambda frame: frame.pts or 0)
    return [
        frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False).transpose(2, 0, 1)
        for frame in frames
    ]


@pytest.fixture(params=["h264", "png"])
def filmed(request: pytest.FixtureRequest, lake: Lake) -> Episode:
    """An episode whose steps 5 and 6 show one picture and whose step 9 shows none."""
    mapping = np.arange(STEPS, dtype=np.int32)
    mapping[6:] -= 1
    mapping[9] = -1
    video = camera(request.param, mapping)
    episode = make_episode(1, steps=STEPS, cameras={"top": video})
    with EpisodeWriter(lake) as writer:
        writer.add(episode)
    return episode


@pytest.mark.parametrize(
    "steps", [[0], [29], list(range(9)), [20, 3, 20, 11], [5, 6], [28, 1], np.array([4, 17])]
)
def test_pictures_equal_a_plain_decode(
    lake: Lake, filmed: Episode, steps: list[int] | NDArray[np.int64]
) -> None:
    got = read_frames(lake, filmed.episode_id, "top", list(steps))
    assert got.shape == (len(steps), 3, HEIGHT, WIDTH)
    assert got.dtype == np.uint8
    video = filmed.cameras["top"]
    mapping = video.index.step_to_frame
    lossless = [picture.transpose(2, 0, 1) for picture in moving_pictures(STEPS)]
    every = lossless if video.index.codec == "png" else plain_decode(video)
    for picture, step in zip(got, steps, strict=True):
        np.testing.assert_array_equal(picture, every[mapping[step]])


def test_no_steps_give_no_pictures(lake: Lake, filmed: Episode) -> None:
    assert read_frames(lake, filmed.episode_id, "top", []).shape == (0, 3, HEIGHT, WIDTH)


def test_planes_are_half_as_many_bytes(lake: Lake, filmed: Episode) -> None:
    got = read_frames(lake, filmed.episode_id, "top", [2, 3], pixel_format="yuv420p")
    assert got.shape == (2, HEIGHT * WIDTH * 3 // 2)
    assert not np.array_equal(got[0], got[1])


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        (lambda lake, e: read_frames(lake, e, "top", [9]), VideoError, "no picture for step 9"),
        (lambda lake, e: read_frames(lake, e, "top", [0, 30]), VideoError, "step 30 is not among"),
        (lambda lake, e: read_frames(lake, e, "top", [-1]), VideoError, "step -1 is not among"),
        (lambda lake, e: read_frames(lake, e, "side", [0]), VideoError, "it has top"),
        (lambda lake, e: read_frames(lake, e + "x", "top", [0]), EpisodeNotFoundError, "no epis"),
    ],
)
def test_what_is_not_there_is_named(
    lake: Lake,
    filmed: Episode,
    read: Callable[[Lake, str], object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        read(lake, filmed.episode_id)


def test_each_camera_has_its_own_bytes(lake: Lake) -> None:
    episode = make_filmed_episode(2, camera_names=("top", "side"), codec="png")
    with EpisodeWriter(lake) as writer:
        writer.add(episode)
    for name in ("side", "top"):
        got = read_frames(lake, episode.episode_id, name, [7])
        np.testing.assert_array_equal(got[0].transpose(1, 2, 0), moving_pictures(12)[7])
