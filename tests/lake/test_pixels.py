"""Pixels equal PyAV's own conversion in every byte, whatever the size, format and scaling."""

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.errors import VideoError
from lake.pixels import PixelConverter, yuv420p_bytes

_FORMATS = [
    "yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuv420p10le", "nv12", "gray", "gray16le",
    "rgb24", "bgr24", "rgba", "gbrp",
]  # fmt: skip


def _noise(pix_fmt: str, height: int, width: int, seed: int = 0) -> VideoFrame:
    random = np.random.default_rng(seed)
    frame = VideoFrame(width, height, pix_fmt)
    for plane in frame.planes:
        if pix_fmt.endswith("10le"):
            samples = random.integers(0, 1024, plane.buffer_size // 2).astype("<u2")
            plane.update(samples.tobytes())
        else:
            plane.update(random.bytes(plane.buffer_size))
    return frame


def _truth(frame: VideoFrame, size: tuple[int, int] | None, how: str, pix_fmt: str) -> object:
    if size is None:
        return frame.to_ndarray(format=pix_fmt)
    return frame.to_ndarray(
        format=pix_fmt, height=size[0], width=size[1], interpolation=how.upper()
    )


@settings(max_examples=150, deadline=None)
@given(
    pix_fmt=st.sampled_from(_FORMATS),
    height=st.integers(1, 70),
    width=st.integers(1, 200),
    size=st.none() | st.tuples(st.integers(1, 64), st.integers(1, 64)),
    how=st.sampled_from(["area", "bilinear"]),
    colour=st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 5, 6, 9])),
)
def test_rgb_is_what_pyav_says(
    pix_fmt: str,
    height: int,
    width: int,
    size: tuple[int, int] | None,
    how: str,
    colour: tuple[int, int],
) -> None:
    frame = _noise(pix_fmt, height, width)
    frame.color_range, frame.colorspace = colour
    converter = PixelConverter(size, how)  # type: ignore[arg-type]  # drawn from the two
    out = np.zeros((3, *converter.output_size(frame)), np.uint8)
    converter.rgb(frame, out)
    truth = np.asarray(_truth(frame, size, how, "rgb24"))
    assert np.array_equal(out.transpose(1, 2, 0), truth)


@pytest.mark.parametrize("size", [(480, 640), (240, 320), (240, 424), (84, 84), (1, 1), (241, 321)])
def test_one_converter_for_frames_of_many_kinds(size: tuple[int, int]) -> None:
    converter = PixelConverter()
    for seed, pix_fmt in enumerate(["yuv420p", "yuv444p", "gray", "yuv420p", "rgb24", "yuv420p"]):
        for shape in (size, (16, 48)):
            frame = _noise(pix_fmt, *shape, seed=seed)
            out = np.zeros((3, *shape), np.uint8)
            converter.rgb(frame, out)
            assert np.array_equal(out.transpose(1, 2, 0), frame.to_ndarray(format="rgb24"))


@settings(max_examples=60, deadline=None)
@given(
    pix_fmt=st.sampled_from(["yuv420p", "yuvj420p", "yuv444p", "rgb24"]),
    half=st.tuples(st.integers(1, 40), st.integers(1, 80)),
    size=st.none() | st.just((32, 48)),
)
def test_yuv_planes_are_what_pyav_says(
    pix_fmt: str, half: tuple[int, int], size: tuple[int, int] | None
) -> None:
    frame = _noise(pix_fmt, 2 * half[0], 2 * half[1])
    converter = PixelConverter(size)
    out = np.zeros(yuv420p_bytes(*converter.output_size(frame)), np.uint8)
    converter.yuv420p(frame, out)
    truth = np.asarray(_truth(frame, size, "area", "yuv420p"))
    assert np.array_equal(out, truth.ravel())


def test_yuv_planes_of_odd_sizes_round_chroma_up() -> None:
    frame = _noise("yuv420p", 5, 7)
    out = np.zeros(yuv420p_bytes(5, 7), np.uint8)
    assert len(out) == 35 + 2 * 12
    PixelConverter().yuv420p(frame, out)
    parts = np.split(out, [35, 47])
    for plane, part in zip(frame.planes, parts, strict=True):
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
        assert np.array_equal(rows[: plane.height, : plane.width].ravel(), part)


def test_the_callers_array_may_have_any_strides() -> None:
    frame = _noise("yuv420p", 6, 8)
    batch = np.zeros((6, 8, 2, 3), np.uint8)
    PixelConverter().rgb(frame, batch[:, :, 1].transpose(2, 0, 1))
    assert np.array_equal(batch[:, :, 1], frame.to_ndarray(format="rgb24"))
    assert not batch[:, :, 0].any()


@pytest.mark.parametrize("shape", [(3, 8, 6), (6, 8, 3), (3, 6)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(VideoError, match=r"pixels are uint8 \(3, 6, 8\)"):
        PixelConverter().rgb(_noise("yuv420p", 6, 8), np.zeros(shape, np.uint8))


def test_another_dtype_is_refused() -> None:
    wrong: np.ndarray = np.zeros((3, 6, 8), np.float32)
    with pytest.raises(VideoError, match="float32"):
        PixelConverter().rgb(_noise("yuv420p", 6, 8), wrong)


def test_no_size_is_refused() -> None:
    with pytest.raises(VideoError, match="0x8"):
        PixelConverter((0, 8))
