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
_YUV = {  # by codec, and whether both sides are even
    ("h264", True): "yuv420p",
    ("h264", False): "yuv444p",
    ("mjpeg", True): "yuvj420p",
    ("mjpeg", False): "yuvj444p",
}
_RANGE = {"h264": ColorRange.MPEG, "mjpeg": ColorRange.JPEG, "png": ColorRange.JPEG}

VideoCodec = Literal["h264", "mjpeg", "png"]


def encode_frames(
    frames: Iterable[NDArray[np.uint8]],
    *,
    fps: float | Fraction,
    step_to_frame: NDArray[np.int32],
    codec: VideoCodec = "h264",
    gop: int = 15,
    crf: int = 18,
    qscale: int = 3,
) -> CameraVideo:
    """Encode pictures as one camera, a frame per picture.

    `h264` is lossy (libx264, no B-frames, a key frame every `gop`): 4:2:0 for even sizes; odd ones,
    which 4:2:0 could only hold padded, become 4:4:4. `mjpeg` is lossy, each picture by itself, of
    the same chroma. `png` keeps every bit, at many times the bytes. One thread, so the same
    pictures give the same bytes.

    Args:
        frames: uint8 [H, W, 3] RGB pictures, taken one at a time, all of one size.
        fps: nominal rate in frames per second, for the timestamps.
        step_to_frame: int32 [T], which picture each step shows, -1 for none.
        codec: `h264`, `mjpeg` or `png`.
        gop: distance of key frames, in frames; of `h264`.
        crf: libx264 quality: 0 is lossless in YUV, 18 hard to tell from the original.
        qscale: JPEG quality as FFmpeg's `-q:v`: 2 is best, 31 worst.

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
    pix_fmt = "rgb24" if codec == "png" else _YUV[codec, even]
    time_base = 1 / Fraction(fps).limit_denominator(100_000)
    options = _options(codec, gop=gop, crf=crf, qscale=qscale)
    encoder = _open_encoder(codec, (height, width), pix_fmt, time_base, options)
    reformatter = VideoReformatter()
    packets: list[Packet] = []  # type: ignore[type-arg]  # generic for type checkers only
    count = 0
    try:
        for picture in chain((first,), pictures):
            _check(picture, count, first.shape)
            frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            if codec != "png":
                frame = reformatter.reformat(
                    frame,
                    format=pix_fmt,
                    dst_colorspace=Colorspace.ITU601,
                    dst_color_range=_RANGE[codec],
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
    quality = {
        "h264": f"libx264 {_PRESET} crf={crf} gop={gop} {pix_fmt}",
        "mjpeg": f"mjpeg qscale={qscale} {pix_fmt}",
        "png": "png lossless",
    }
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
        color_range=int(_RANGE[codec]),
        color_space=_SPACE_RGB if codec == "png" else _SPACE_SMPTE170M,
        quality=quality[codec],
    )
    return CameraVideo(index=index, payload=b"".join(data))


def _open_encoder(
    codec: VideoCodec,
    size: tuple[int, int],
    pix_fmt: str,
    time_base: Fraction,
    options: dict[str, str],
) -> VideoCodecContext:
    encoder = av.CodecContext.create("libx264" if codec == "h264" else codec, "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.height, encoder.width = size
    encoder.pix_fmt = pix_fmt
    encoder.time_base, encoder.framerate = time_base, 1 / time_base
    encoder.thread_count = 1
    if codec != "png":
        encoder.color_range, encoder.colorspace = int(_RANGE[codec]), _SPACE_SMPTE170M
    encoder.options = options
    return encoder


def _options(codec: VideoCodec, *, gop: int, crf: int, qscale: int) -> dict[str, str]:
    if codec == "h264":
        return {
            "preset": _PRESET,
            "crf": str(crf),
            "g": str(gop),
            "bf": "0",
            "sc_threshold": "0",  # key frames only where the GOP ends
            # Else x264 picks SIMD code whose results vary between CPUs and, in about 1 % of encodes
            # of small pictures, from run to run. It costs no measurable time.
            "x264-params": "cpu-independent=1",
        }
    if codec == "mjpeg":
        return {"qmin": str(qscale), "qmax": str(qscale)}
    return {}


def _check(picture: NDArray[np.uint8], number: int, shape: tuple[int, ...] | None) -> None:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise VideoError(
            f"picture {number} is {picture.dtype} {picture.shape}, not uint8 [height, width, 3]"
        )
    if shape is not None and picture.shape != shape:
        raise VideoError(f"picture {number} is {picture.shape}, the first one {shape}")
