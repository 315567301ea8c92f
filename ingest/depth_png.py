"""16-bit depth as PNG, lossless."""

from collections.abc import Iterable

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from lake.errors import VideoError


def depth_pngs(frames: Iterable[NDArray[np.uint16]]) -> list[bytes]:
    """A PNG of one 16-bit channel for each frame.

    Args:
        frames: uint16 [H, W], all of one size, in native byte order.

    Raises:
        VideoError: a frame of another size than the first.
    """
    encoder: VideoCodecContext | None = None
    packed: list[bytes] = []
    for number, depth in enumerate(frames):
        if encoder is None:
            created = av.CodecContext.create("png", "w")
            assert isinstance(created, VideoCodecContext)
            encoder = created
            encoder.height, encoder.width = depth.shape
            encoder.pix_fmt = "gray16be"
        if depth.shape != (encoder.height, encoder.width):
            raise VideoError(f"picture {number} is {depth.shape}, the first one another size")
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(depth), format="gray16le")
        packed += [bytes(packet) for packet in encoder.encode(frame.reformat(format="gray16be"))]
    return packed if encoder is None else [*packed, *map(bytes, encoder.encode(None))]
