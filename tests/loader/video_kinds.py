"""Video that the product reads and does not write itself."""

import io
from fractions import Fraction
from typing import Any

import av
import numpy as np
from PIL import Image

from lake import CameraVideo, VideoIndex
from lake.video_images import images_video
from lake.video_runs import packet_checksums
from tests.episodes import moving_pictures


def bframe_video(steps: int, *, gop: int = 12) -> CameraVideo:
    """H.264 with B-frames and open GOPs: packets stand in another order than pictures."""
    context: Any = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 64, 48, "yuv420p"
    context.time_base, context.thread_count = Fraction(1, 10), 1
    context.options = {
        "g": str(gop),
        "bf": "3",
        "preset": "veryfast",
        "x264-params": "open-gop=1:b-adapt=0:scenecut=0:cpu-independent=1",
    }
    packets = []
    for number, picture in enumerate(moving_pictures(steps)):
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
        frame.pts = number
        packets += context.encode(frame)
    packets += context.encode(None)
    data = [bytes(packet) for packet in packets]
    pts = np.array([packet.pts for packet in packets], np.int64)
    sizes = np.array([len(part) for part in data], np.int32)
    assert (np.diff(pts) < 0).any()
    index = VideoIndex(
        codec="h264",
        width=64,
        height=48,
        pix_fmt="yuv420p",
        time_base=(1, 10),
        extradata=b"",
        packet_size=sizes,
        packet_frame=pts.astype(np.int32),
        packet_pts=pts,
        packet_checksum=packet_checksums(b"".join(data), sizes),
        packet_key=np.array([packet.is_keyframe for packet in packets], np.bool_),
        step_to_frame=np.arange(steps, dtype=np.int32),
    )
    return CameraVideo(index=index, payload=b"".join(data))


def jpeg_video(steps: int) -> CameraVideo:
    """JPEG pictures as a camera."""
    files = []
    for picture in moving_pictures(steps):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "jpeg", quality=90)
        files.append(file.getvalue())
    return images_video(files, step_to_frame=np.arange(steps, dtype=np.int32))
