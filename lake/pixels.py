"""From decoded frames to pixels in arrays the caller owns.

What RGB pixels *are* is defined by PyAV: `frame.to_ndarray(format="rgb24")`, or with a size
`frame.to_ndarray(format="rgb24", width=w, height=h, interpolation=...)`. That call builds a scaler
for every frame and delivers channels last; here scalers are kept, and channels come first at no
cost by converting to planar `gbrp`. FFmpeg's planar conversion differs from the packed one for some
widths (the last columns of widths with remainder 2..8 modulo 16 on x86), so each kind of frame is
tried on noise first and goes the packed way unless both agree in every byte.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from lake.errors import VideoError

_PLANAR_SOURCES = frozenset({"yuv420p", "yuv422p", "yuv444p", "yuvj420p", "yuvj422p", "yuvj444p"})
_CHANNELS: Final = (1, 2, 0)  # of the planes of gbrp
# As numbers, which PyAV takes faster than members of an enumeration.
_INTERPOLATIONS: Final = {"area": int(Interpolation.AREA), "bilinear": int(Interpolation.BILINEAR)}
_UINT8: Final = np.dtype(np.uint8)

_Kind = tuple[int, int, str, int, int]


@dataclass(frozen=True)
class _Scaler:
    """A kept scaler for one kind of frame, and whether it may go through planar RGB."""

    reformatter: VideoReformatter
    planar: bool


class PixelConverter:
    """Writes frames as channels-first RGB or as YUV 4:2:0 planes, scaled where a size is given.

    One thread. Not for use from several threads at once.

    Attributes:
        size: (height, width) of the output, or None for the size of each frame.
    """

    def __init__(
        self,
        size: tuple[int, int] | None = None,
        interpolation: Literal["area", "bilinear"] = "area",
    ) -> None:
        """Scale to `size` (height, width), in the same pass as the conversion, or not at all."""
        if size is not None and min(size) < 1:
            raise VideoError(f"pictures cannot be scaled to {size[0]}x{size[1]} pixels")
        self.size = size
        # Unscaled conversion goes by FFmpeg's default, as to_ndarray does.
        self._interpolation = _INTERPOLATIONS["bilinear" if size is None else interpolation]
        self._rgb: dict[_Kind, _Scaler] = {}
        self._yuv: dict[_Kind, VideoReformatter] = {}

    def output_size(self, frame: VideoFrame) -> tuple[int, int]:
        """(height, width) in which this frame comes out."""
        return self.size or (frame.height, frame.width)

    def rgb(self, frame: VideoFrame, out: NDArray[np.uint8]) -> None:
        """Write a frame as RGB.

        Args:
            frame: a decoded frame of any pixel format.
            out: uint8 [3, height, width], any strides.

        Raises:
            VideoError: `out` has another shape or dtype.
        """
        size = height, width = self.output_size(frame)
        _check(out, (3, height, width))
        kind = _kind(frame)
        scaler = self._rgb.get(kind)
        if scaler is None:
            scaler = self._rgb[kind] = _Scaler(VideoReformatter(), self._planar_agrees(frame))
        if scaler.planar:
            planes = self._reformat(scaler.reformatter, frame, size, "gbrp").planes
            for channel, plane in zip(_CHANNELS, planes, strict=True):
                out[channel] = _rows(plane, height, width)
        else:
            (packed,) = self._reformat(scaler.reformatter, frame, size, "rgb24").planes
            out[...] = _rows(packed, height, 3 * width).reshape(height, width, 3).transpose(2, 0, 1)

    def yuv420p(self, frame: VideoFrame, out: NDArray[np.uint8]) -> None:
        """Write a frame as planes Y, U, V, one after the other; odd sizes round chroma up.

        Frames of another pixel format are converted, full-range ones to limited range; the planes
        of a yuv420p frame are copied as they are.

        Args:
            frame: a decoded frame of any pixel format.
            out: uint8 [yuv420p_bytes(height, width)].

        Raises:
            VideoError: `out` has another shape or dtype.
        """
        size = height, width = self.output_size(frame)
        _check(out, (yuv420p_bytes(height, width),))
        kind = _kind(frame)
        if kind[:3] != (width, height, "yuv420p"):
            reformatter = self._yuv.get(kind)
            if reformatter is None:
                reformatter = self._yuv[kind] = VideoReformatter()
            frame = self._reformat(reformatter, frame, size, "yuv420p")
        chroma = (height + 1) // 2, (width + 1) // 2
        at = 0
        for plane, (rows, columns) in zip(frame.planes, (size, chroma, chroma), strict=True):
            stop = at + rows * columns
            out[at:stop].reshape(rows, columns)[...] = _rows(plane, rows, columns)
            at = stop

    def _reformat(
        self,
        reformatter: VideoReformatter,
        frame: VideoFrame,
        size: tuple[int, int],
        pix_fmt: str,
    ) -> VideoFrame:
        return reformatter.reformat(
            frame,
            width=size[1],
            height=size[0],
            format=pix_fmt,
            interpolation=self._interpolation,
            threads=1,
        )

    def _planar_agrees(self, like: VideoFrame) -> bool:
        """Whether planar and packed RGB of a noise frame of this kind agree in every byte."""
        if like.format.name not in _PLANAR_SOURCES:
            return False
        noise = VideoFrame(like.width, like.height, like.format.name)
        noise.color_range, noise.colorspace = like.color_range, like.colorspace
        random = np.random.default_rng(0)
        for plane in noise.planes:
            plane.update(random.bytes(plane.buffer_size))
        size = self.output_size(like)
        packed = self._reformat(VideoReformatter(), noise, size, "rgb24").to_ndarray()
        planar = self._reformat(VideoReformatter(), noise, size, "gbrp").to_ndarray()
        return bool(np.array_equal(packed, planar))


def yuv420p_bytes(height: int, width: int) -> int:
    """Bytes of a picture in 4:2:0: a full plane and two of half the size, rounded up."""
    return height * width + 2 * ((height + 1) // 2) * ((width + 1) // 2)


def _kind(frame: VideoFrame) -> _Kind:
    return (
        frame.width,
        frame.height,
        frame.format.name,
        int(frame.colorspace),
        int(frame.color_range),
    )


def _rows(plane: VideoPlane, rows: int, columns: int) -> NDArray[np.uint8]:
    """uint8 [rows, columns]: the bytes of a plane without the padding of its lines."""
    return np.ndarray((rows, columns), _UINT8, memoryview(plane), 0, (plane.line_size, 1))


def _check(out: NDArray[np.uint8], shape: tuple[int, ...]) -> None:
    if out.shape != shape or out.dtype != _UINT8:
        raise VideoError(f"pixels are uint8 {shape}, the array given is {out.dtype} {out.shape}")
