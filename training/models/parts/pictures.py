"""Pictures of several sizes, as one batch of squares."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor


def fit_pictures(
    images: Sequence[Tensor], size: int, *, like: Tensor, stretch: bool = False
) -> Tensor:
    """Buckets of pictures, each of its own size, to one batch of squares.

    A picture keeps its shape: it is scaled to fit (bilinear, antialiased) and stands amid black, as
    openpi's `resize_with_pad` (`src/openpi/shared/image_tools.py`) places it. Pictures of the right
    size are not touched.

    Args:
        images: buckets [I_b, 3, h, w] uint8 RGB.
        size: height and width in pixels.
        like: decides device and dtype where there is no bucket.
        stretch: fill the square instead, whatever the shape, as GR00T N1.5 does.

    Returns:
        [I, 3, size, size] float from -1 to 1, of `like`'s dtype.
    """
    squares = [
        _fit(bucket, size, stretch=stretch).to(like.dtype) for bucket in images if len(bucket)
    ]
    return torch.cat(squares) if squares else like.new_zeros(0, 3, size, size)


def _fit(images: Tensor, size: int, *, stretch: bool) -> Tensor:
    height, width = images.shape[2:]
    x = images.to(torch.float32)
    if (height, width) != (size, size):
        high, wide = (
            size if stretch else max(1, side * size // max(height, width))
            for side in (height, width)
        )
        x = F.interpolate(x, (high, wide), mode="bilinear", antialias=True)
        top, left = (size - high) // 2, (size - wide) // 2
        x = F.pad(x, (left, size - wide - left, top, size - high - top))
    return x / 127.5 - 1.0
