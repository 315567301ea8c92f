"""One clip in every codec that recordings come in, as far as this PyAV can encode it."""

from fractions import Fraction
from typing import Any

import av
import numpy as np

from lake import CameraVideo, VideoIndex
from lake.video_bitstream import needs_extradata
from lake.video_runs import packet_checksums
from tests.episodes import moving_pictures

ENCODERS = {
    "h264": ("libx264", {"g": "8", "bf": "2", "x264-params": "cpu-independent=1"}),
    "hevc": ("libx265", {"x265-params": "keyint=8:bframes=2:log-level=none:pools=none"}),
    "av1": ("libsvtav1", {"g": "8", "preset": "12", "svtav1-params": "lp=1"}),
    "vp9": ("libvpx-vp9", {"g": "8", "cpu-used": "8", "deadline": "realtime"}),
    "mpeg4": ("mpeg4", {"g": "8"}),
    "mjpeg": ("mjpeg", {}),
    "png": ("png", {}),
}
FORMATS = {"mjpeg": "yuvj420p", "png": "rgb24"}
WIDTH, HEIGHT = 80, 64


def coded_clip(codec: str, steps: int = 24, *, header: bool = False) -> CameraVideo:
    """A clip with one frame per step; with `header` the codec's headers are out of band."""
    encoder, options = ENCODERS[codec]
    context: Any = av.CodecContext.create(encoder, "w")
    context.width, context.height = WIDTH, HEIGHT
    context.pix_fmt = FORMATS.get(codec, "yuv420p")
    context.time_base, context.thread_count = Fraction(1, 10), 1
    context.options = options
    if header:
        context.flags |= av.codec.context.Flags.global_header
    packets = []
    for number, picture in enumerate(moving_pictures(steps)):
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        frame = frame.reformat(width=WIDTH, height=HEIGHT, format=context.pix_fmt)
        frame.pts = number
        packets += context.encode(frame)
    packets += context.encode(None)
    data = [bytes(packet) for packet in packets]
    pts = np.array([packet.pts for packet in packets], np.int64)
    sizes = np.array([len(part) for part in data], np.int32)
    index = VideoIndex(
        codec=codec,
        width=WIDTH,
        height=HEIGHT,
        pix_fmt=context.pix_fmt,
        time_base=(1, 10),
        extradata=bytes(context.extradata or b"") if needs_extradata(codec) else b"",
        packet_size=sizes,
        packet_frame=pts.astype(np.int32),
        packet_pts=pts,
        packet_checksum=packet_checksums(b"".join(data), sizes),
        packet_key=np.array([packet.is_keyframe for packet in packets], np.bool_),
        step_to_frame=np.arange(steps, dtype=np.int32),
    )
    return CameraVideo(index=index, payload=b"".join(data))
