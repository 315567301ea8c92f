"""Encoding pictures that were recorded raw, once, with settings that suit random access."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import chain
from typing import Literal

import av
import numpy as np
import xxhash
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter
from numpy.typing import NDArray

from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_index import VideoIndex

_PRESET = "veryfast"
_SPACE_RGB, _SPACE_SMPTE170M = 0, 6  # AVColorSpace


def encode_frames(
    frames: Iterable[NDArray[np.uint8]],
    *,
    fps: float | Fraction,
    step_to_frame: NDArray[np.int32],
    codec: Literal["h264", "png"] = "h264",
    gop: int = 15,
    crf: int = 18,
) -> CameraVideo:
    """Encode pictures as one camera, a frame per picture.

    `h264` is lossy (libx264, no B-frames, a key frame every `gop`): 4:2:0 for even sizes; odd ones,
    which 4:2:0 could only hold padded, become 4:4:4. `png` keeps every bit, at many times the
    bytes. One thread, so the same pictures give the same bytes.

    Args:
        frames: uint8 [H, W, 3] RGB pictures, taken one at a time, all of one size.
        fps: nominal rate in frames per second, for the timestamps.
        step_to_frame: int32 [T], which picture each step shows, -1 for none.
        codec: `h264` or `png`.
        gop: distance of key frames, in frames.
        crf: libx264 quality: 0 is lossless in YUV, 18 hard to tell from the original.

    Raises:
        VideoError: no picture; one that is no uint8 [H, W, 3] or of another size than the first
            (its number is named); or an encoder that does not return one packet per picture.
    """
    pictures = iter(frames)
    first = next(pictures, None)
    if first is None:
        raise VideoError("no picture to encode: leave out a camera that has none")
    _check(first, 0, None)
    height, width = first.shape[:2]
    even = height % 2 == 0 and width % 2 == 0
    pix_fmt = "rgb24" if codec == "png" else "yuv420p" if even else "yuv444p"
    time_base = 1 / Fraction(fps).limit_denominator(100_000)
    encoder = _open_encoder(codec, (height, width), pix_fmt, time_base, gop, crf)
    reformatter = VideoReformatter()
    packets: list[Packet] = []  # type: ignore[type-arg]  # generic for type checkers only
    count = 0
    try:
        for picture in chain((first,), pictures):
            _check(picture, count, first.shape)
            frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            if codec == "h264":
                frame = reformatter.reformat(
                    frame,
                    format=pix_fmt,
                    dst_colorspace=Colorspace.ITU601,
                    dst_color_range=ColorRange.MPEG,
                    threads=1,
                )
            frame.pts, frame.time_base = count, time_base
            packets += encoder.encode(frame)
            count += 1
        packets += encoder.encode(None)
    except av.error.FFmpegError as error:
        raise VideoError(f"{encoder.name} refused picture {count} ({error.strerror})") from error
    data = [bytes(packet) for packet in packets]
    ordinals = np.array([packet.pts for packet in packets], np.float64)  # None becomes NaN
    if not np.array_equal(ordinals, np.arange(count)):
        raise VideoError(f"{encoder.name} made {len(packets)} packets out of {count} pictures")
    lossy = codec == "h264"
    index = VideoIndex(
        codec=codec,
        width=width,
        height=height,
        pix_fmt=pix_fmt,
        time_base=(time_base.numerator, time_base.denominator),
        packet_size=np.array([len(part) for part in data], np.int32),
        packet_frame=np.arange(count, dtype=np.int32),
        packet_pts=np.arange(count, dtype=np.int64),
        packet_checksum=np.array([xxhash.xxh3_64_intdigest(part) for part in data], np.uint64),
        packet_key=np.array([packet.is_keyframe for packet in packets], np.bool_),
        step_to_frame=step_to_frame,
        color_range=int(ColorRange.MPEG if lossy else ColorRange.JPEG),
        color_space=_SPACE_SMPTE170M if lossy else _SPACE_RGB,
        quality=f"libx264 {_PRESET} crf={crf} gop={gop} {pix_fmt}" if lossy else "png lossless",
    )
    return CameraVideo(index=index, payload=b"".join(data))


def _open_encoder(
    codec: str, size: tuple[int, int], pix_fmt: str, time_base: Fraction, gop: int, crf: int
) -> VideoCodecContext:
    encoder = av.CodecContext.create("libx264" if codec == "h264" else "png", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.height, encoder.width = size
    encoder.pix_fmt = pix_fmt
    encoder.time_base, encoder.framerate = time_base, 1 / time_base
    encoder.thread_count = 1
    if codec == "h264":
        encoder.color_range, encoder.colorspace = int(ColorRange.MPEG), _SPACE_SMPTE170M
        encoder.options = {
            "preset": _PRESET,
            "crf": str(crf),
            "g": str(gop),
            "bf": "0",
            "sc_threshold": "0",  # key frames only where the GOP ends
            # Else x264 picks SIMD code whose results vary between CPUs and, in about 1 % of encodes
            # of small pictures, from run to run. It costs no measurable time.
            "x264-params": "cpu-independent=1",
        }
    return encoder


def _check(picture: NDArray[np.uint8], number: int, shape: tuple[int, ...] | None) -> None:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise VideoError(
            f"picture {number} is {picture.dtype} {picture.shape}, not uint8 [height, width, 3]"
        )
    if shape is not None and picture.shape != shape:
        raise VideoError(f"picture {number} is {picture.shape}, the first one {shape}")
