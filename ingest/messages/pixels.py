"""Pixels of raw pictures in messages, by the encodings of ROS and Foxglove.

Sources: sensor_msgs/Image and sensor_msgs/image_encodings.hpp (`yuv422` is UYVY, `yuv422_yuy2` is
YUYV); foxglove.RawImage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import VideoError

PixelKind = Literal["rgb", "mosaic", "gray16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelFormat:
    """How the pixels of an encoding lie.

    Attributes:
        kind: what they become: uint8 [H, W, 3] RGB, uint8 [H, W] of a colour filter array, uint16
            [H, W], or float32 [H, W].
        channels: bytes or samples of a pixel.
        order: of channels, to RGB; empty for `yuyv` and `uyvy`.
        packed: FFmpeg's name of it, where FFmpeg converts it.
    """

    kind: PixelKind
    channels: int = 1
    order: tuple[int, ...] = ()
    packed: str = ""


_GRAY: Final = PixelFormat(kind="rgb", channels=1, order=(0, 0, 0))
_BGR: Final = PixelFormat(kind="rgb", channels=3, order=(2, 1, 0))
_UYVY: Final = PixelFormat(kind="rgb", channels=2, packed="uyvy422")
_YUYV: Final = PixelFormat(kind="rgb", channels=2, packed="yuyv422")
_GRAY16: Final = PixelFormat(kind="gray16")
FORMATS: Final[Mapping[str, PixelFormat]] = {
    "rgb8": PixelFormat(kind="rgb", channels=3, order=(0, 1, 2)),
    "bgr8": _BGR,
    "8uc3": _BGR,
    "rgba8": PixelFormat(kind="rgb", channels=4, order=(0, 1, 2)),
    "bgra8": PixelFormat(kind="rgb", channels=4, order=(2, 1, 0)),
    "mono8": _GRAY,
    "8uc1": _GRAY,
    "mono16": _GRAY16,
    "16uc1": _GRAY16,
    "32fc1": PixelFormat(kind="float32"),
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    **{
        f"bayer_{order}8": PixelFormat(kind="mosaic", packed=f"bayer_{order}8")
        for order in ("rggb", "bggr", "gbrg", "grbg")
    },
}
_DTYPES: Final = {"gray16": "u2", "float32": "f4"}


def pixel_format(encoding: str) -> PixelFormat:
    """How an encoding's pixels lie.

    Raises:
        VideoError: it is not known.
    """
    found = FORMATS.get(encoding.lower())
    if found is None:
        raise VideoError(f"pixels in {encoding!r}; known are {', '.join(FORMATS)}")
    return found


def read_pixels(fields: Mapping[str, Any], pixels: PixelFormat) -> NDArray[Any]:
    """The picture of a message, without the padding at the end of its rows.

    Args:
        fields: `height`, `width`, `step` (bytes of a row; 0 for rows without padding),
            `is_bigendian` where there is one, `data`. Bytes behind the last row are not looked at.
        pixels: of its encoding.

    Returns:
        As `PixelFormat.kind` says, in native byte order.

    Raises:
        VideoError: fewer bytes than rows of that size, or a size that is none.
    """
    height, width = _whole(fields["height"]), _whole(fields["width"])
    dtype = np.dtype(_DTYPES.get(pixels.kind, "u1"))
    row = width * pixels.channels * dtype.itemsize
    step, data = _whole(fields.get("step", 0)) or row, fields["data"]
    if height < 1 or width < 1 or step < row or len(data) < step * (height - 1) + row:
        raise VideoError(
            f"{len(data)} bytes for {width}x{height} pixels of {pixels.channels * dtype.itemsize}"
            f" bytes, {step} bytes a row"
        )
    flat = np.frombuffer(data, np.uint8)
    rows = np.lib.stride_tricks.as_strided(flat, (height, row), (step, 1), writeable=False)
    if pixels.kind in {"gray16", "float32"}:
        big = bool(fields.get("is_bigendian", False))
        numbers = np.ascontiguousarray(rows).view(dtype.newbyteorder(">" if big else "<"))
        return numbers.astype(dtype, copy=False)
    if pixels.kind == "mosaic":
        return rows
    if pixels.packed:
        return _from_yuv(rows.reshape(height, width, 2), pixels.packed)
    picture = rows.reshape(height, width, pixels.channels)
    return picture if pixels.order == tuple(range(pixels.channels)) else picture[..., pixels.order]


def _whole(value: Any) -> int:  # noqa: ANN401  whatever a message holds
    if isinstance(value, (int, np.integer)) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise VideoError(f"{value!r} where a number of pixels or bytes is due")


def demosaiced(mosaic: NDArray[np.uint8], packed: str) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] RGB of a colour filter array, uint8 [H, W], by FFmpeg's interpolation.

    Raises:
        VideoError: a side is odd.
    """
    if mosaic.shape[0] % 2 or mosaic.shape[1] % 2:
        raise VideoError(f"a colour filter array of {mosaic.shape}: its sides must be even")
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(mosaic), format=packed)
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _from_yuv(pairs: NDArray[np.uint8], packed: str) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] RGB of 4:2:2, two bytes a pixel; BT.601, limited range."""
    if pairs.shape[1] % 2:
        raise VideoError(f"4:2:2 of {pairs.shape[1]} columns: their number must be even")
    yuyv = pairs if packed == "yuyv422" else pairs[..., ::-1]
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(yuyv), format="yuyv422")
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
