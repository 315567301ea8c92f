"""Scaling of tensors against FFmpeg's area scaler."""

import numpy as np
import pytest
import torch
from av.video.frame import VideoFrame

from lake.pixels import PixelConverter
from loader.decode.area_scale import scaled


def _grey(height: int, width: int) -> VideoFrame:
    """Smooth shapes without colour: nothing but the filter can make a difference."""
    y, x = np.mgrid[:height, :width]
    plane = 120 + 60 * np.sin(x / 7) * np.cos(y / 5) + 40 * (x > width / 2)
    return VideoFrame.from_ndarray(
        np.repeat(plane.astype(np.uint8)[..., None], 3, axis=2), format="rgb24"
    ).reformat(format="yuv420p")


@pytest.mark.parametrize("size", [(32, 40), (28, 28), (21, 64), (64, 33), (96, 120), (30, 130)])
def test_grey_pictures_are_as_ffmpeg_scales_them(size: tuple[int, int]) -> None:
    frame = _grey(64, 80)
    whole, expected = np.empty((3, 64, 80), np.uint8), np.empty((3, *size), np.uint8)
    PixelConverter().rgb(frame, whole)
    PixelConverter(size).rgb(frame, expected)
    found = scaled(torch.from_numpy(whole)[None], size)
    assert found.dtype == torch.uint8
    off = np.abs(found[0].numpy().astype(int) - expected)
    assert off.max() <= 3  # FFmpeg cuts fractions off between its two passes
    assert off.mean() < 2


def test_the_same_size_is_the_same_tensor() -> None:
    pictures = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    assert scaled(pictures, (8, 8)) is pictures


@pytest.mark.parametrize("size", [(3, 5), (8, 8), (19, 40)])
def test_flat_pictures_stay_flat(size: tuple[int, int]) -> None:
    pictures = torch.full((1, 3, 16, 20), 255, dtype=torch.uint8)
    assert (scaled(pictures, size) == 255).all()
