"""What is encoded decodes to as many frames as there were pictures, each close to its own."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lake.errors import VideoError
from lake.video_encode import encode_frames
from tests.lake.video_clips import decoded_frames, pictures, steps


def _smooth(count: int, height: int, width: int) -> list[NDArray[np.uint8]]:
    y, x = np.mgrid[0:height, 0:width]
    return [
        np.stack([x * 2 + number, y * 2, np.full_like(x, 5 * number)], -1).astype(np.uint8) % 200
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("height", "width", "pix_fmt"),
    [
        (48, 64, "yuv420p"),
        (47, 64, "yuv444p"),
        (48, 63, "yuv444p"),
        (1, 1, "yuv444p"),
        (2, 2, "yuv420p"),
    ],
)
def test_h264(height: int, width: int, pix_fmt: str) -> None:
    given = _smooth(32, height, width)
    video = encode_frames(given, fps=30, step_to_frame=steps(32))
    index = video.index
    assert (index.num_frames, index.height, index.width) == (32, height, width)
    assert (index.codec, index.pix_fmt) == ("h264", pix_fmt)
    assert index.quality == f"libx264 veryfast crf=18 gop=15 {pix_fmt}"
    assert np.flatnonzero(index.packet_key).tolist() == [0, 15, 30]
    assert index.packet_frame.tolist() == list(range(32)), "no B-frames"
    assert index.time_base == (1, 30)
    found = decoded_frames(video, range(32))
    assert all(frame.format.name == pix_fmt for frame in found)
    for picture, frame in zip(given, found, strict=True):
        shown = frame.to_ndarray(format="rgb24").astype(np.int16)
        assert shown.shape == picture.shape
        assert np.abs(shown - picture).mean() < 8


def test_h264_states_the_colours_it_was_made_with() -> None:
    video = encode_frames(_smooth(2, 16, 16), fps=30, step_to_frame=steps(2))
    (frame,) = decoded_frames(video, [0])
    assert (video.index.color_range, video.index.color_space) == (1, 6)
    assert (frame.color_range, frame.colorspace) == (1, 6)


def test_lossless_in_yuv_shows_flat_colours_exactly() -> None:
    colours = [(0, 0, 0), (255, 255, 255), (255, 0, 0), (10, 200, 90)]
    given = [np.full((16, 16, 3), colour, np.uint8) for colour in colours]
    video = encode_frames(given, fps=10, step_to_frame=steps(4), crf=0, gop=2)
    for colour, frame in zip(colours, decoded_frames(video, range(4)), strict=True):
        shown = frame.to_ndarray(format="rgb24").astype(np.int16)
        assert np.abs(shown - np.array(colour)).max() <= 2


@pytest.mark.parametrize(
    ("height", "width", "pix_fmt"), [(48, 64, "yuvj420p"), (47, 63, "yuvj444p"), (1, 1, "yuvj444p")]
)
def test_jpeg(height: int, width: int, pix_fmt: str) -> None:
    given = _smooth(8, height, width)
    sizes = []
    for qscale, most in ((2, 4), (25, 25)):
        video = encode_frames(given, fps=30, step_to_frame=steps(8), codec="mjpeg", qscale=qscale)
        index = video.index
        assert (index.codec, index.pix_fmt, index.num_frames) == ("mjpeg", pix_fmt, 8)
        assert index.quality == f"mjpeg qscale={qscale} {pix_fmt}"
        assert index.packet_key.all()
        for picture, frame in zip(given, decoded_frames(video, range(8)), strict=True):
            assert frame.format.name == pix_fmt
            shown = frame.to_ndarray(format="rgb24").astype(np.int16)
            assert np.abs(shown - picture).mean() < most
        sizes.append(index.num_bytes)
    assert sizes[0] >= sizes[1]


@pytest.mark.parametrize(("height", "width"), [(48, 64), (17, 33), (1, 1)])
def test_png_keeps_every_bit(height: int, width: int) -> None:
    given = list(pictures(5, height, width))
    video = encode_frames(given, fps=29.97, step_to_frame=steps(5), codec="png")
    assert video.index.packet_key.all()
    assert video.index.quality == "png lossless"
    assert video.index.time_base == (100, 2997)
    for frame in (4, 0, 2):
        (found,) = decoded_frames(video, [frame])
        assert np.array_equal(found.to_ndarray(format="rgb24"), given[frame])
    for picture, found in zip(given, decoded_frames(video, range(5)), strict=True):
        assert np.array_equal(found.to_ndarray(format="rgb24"), picture)


def test_the_same_pictures_give_the_same_bytes() -> None:
    one, two = (
        encode_frames(pictures(20, 32, 48), fps=Fraction(30000, 1001), step_to_frame=steps(20))
        for _ in range(2)
    )
    assert one.payload == two.payload
    assert one.index.to_bytes() == two.index.to_bytes()


def test_pictures_of_any_strides() -> None:
    picture = next(pictures(1, 16, 32))
    video = encode_frames([picture[:, ::-1]], fps=30, step_to_frame=steps(1), codec="png")
    (frame,) = decoded_frames(video, [0])
    assert np.array_equal(frame.to_ndarray(format="rgb24"), picture[:, ::-1])


def test_no_picture() -> None:
    with pytest.raises(VideoError, match="no picture"):
        encode_frames([], fps=30, step_to_frame=steps(0))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (np.zeros((16, 18, 3), np.uint8), r"picture 2 is \(16, 18, 3\), the first one"),
        (np.zeros((16, 16, 4), np.uint8), r"picture 2 is uint8 \(16, 16, 4\)"),
        (np.zeros((16, 16), np.uint8), r"picture 2 is uint8 \(16, 16\)"),
        (np.zeros((16, 16, 3), np.float32), "picture 2 is float32"),
    ],
)
def test_a_picture_that_does_not_fit(bad: NDArray[np.uint8], reason: str) -> None:
    good = np.zeros((16, 16, 3), np.uint8)
    with pytest.raises(VideoError, match=reason):
        encode_frames([good, good, bad], fps=30, step_to_frame=steps(3))
