"""Pictures of one plane, and of floats, as PNG, lossless."""

from collections.abc import Iterable
from typing import Any, Final, Literal

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import VideoError

PngPixels = Literal["gray", "gray16", "rgba"]
_FORMATS: Final = {  # as arrays, as PNG
    "gray": ("gray", "gray"),
    "gray16": ("gray16le", "gray16be"),
    "rgba": ("rgba", "rgba"),
}


class PngEncoder:
    """Makes a PNG of each picture: uint8 [H, W], uint16 [H, W] in native order, uint8 [H, W, 4]."""

    def __init__(self, pixels: PngPixels) -> None:
        self._given, self._stored = _FORMATS[pixels]
        self._encoder: VideoCodecContext | None = None
        self._pngs: list[bytes] = []
        self._count = 0

    def add(self, picture: NDArray[Any]) -> None:
        """Encode the next picture.

        Raises:
            VideoError: it is of another size than the first.
        """
        if self._encoder is None:
            created = av.CodecContext.create("png", "w")
            assert isinstance(created, VideoCodecContext)
            created.height, created.width = picture.shape[:2]
            created.pix_fmt, created.thread_count = self._stored, 1
            self._encoder = created
        if picture.shape[:2] != (self._encoder.height, self._encoder.width):
            raise VideoError(
                f"picture {self._count} is {picture.shape}, the first one another size"
            )
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=self._given)
        if self._given != self._stored:
            frame = frame.reformat(format=self._stored)
        self._pngs += [bytes(packet) for packet in self._encoder.encode(frame)]
        self._count += 1

    def finish(self) -> list[bytes]:
        """All PNGs, in order; nothing can be added afterwards."""
        if self._encoder is not None:
            self._pngs += map(bytes, self._encoder.encode(None))
        return self._pngs


def depth_pngs(frames: Iterable[NDArray[np.uint16]]) -> list[bytes]:
    """A PNG of one 16-bit channel for each frame.

    Args:
        frames: uint16 [H, W], all of one size, in native byte order.

    Raises:
        VideoError: a frame of another size than the first.
    """
    encoder = PngEncoder("gray16")
    for depth in frames:
        encoder.add(depth)
    return encoder.finish()
