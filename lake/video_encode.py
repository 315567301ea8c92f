"""Encoding pictures that were recorded raw, once, with settings that suit random access."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

import av
import numpy as np
import xxhash
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
    encoder: PictureEncoder | None = None
    for picture in frames:
        if encoder is None:
            encoder = PictureEncoder(fps=fps, codec=codec, gop=gop, crf=crf, qscale=qscale)
        encoder.add(picture)
    if encoder is None:
        raise VideoError("no picture to encode: leave out a camera that has none")
    return encoder.finish(step_to_frame)


class PictureEncoder:
    """What `encode_frames` does, for pictures that come one by one; holds the encoded ones."""

    def __init__(
        self,
        *,
        fps: float | Fraction,
        codec: VideoCodec = "h264",
        gop: int = 15,
        crf: int = 18,
        qscale: int = 3,
    ) -> None:
        """Arguments as of `encode_frames`."""
        self.codec: VideoCodec = codec
        self.count = 0
        self._time_base = 1 / Fraction(fps).limit_denominator(100_000)
        self._options = _options(codec, gop=gop, crf=crf, qscale=qscale)
        self._quality = {
            "h264": f"libx264 {_PRESET} crf={crf} gop={gop}",
            "mjpeg": f"mjpeg qscale={qscale}",
            "png": "png lossless",
        }[codec]
        self._shape: tuple[int, int, int] = (0, 0, 3)
        self._encoder: VideoCodecContext | None = None
        self._reformatter = VideoReformatter()
        self._parts: list[bytes] = []
        self._ordinals: list[int | None] = []
        self._keys: list[bool] = []

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Encode the next picture.

        Args:
            picture: uint8 [H, W, 3] RGB.

        Raises:
            VideoError: it is none, or of another size than the first.
        """
        _check(picture, self.count, self._shape if self.count else None)
        if self._encoder is None:
            self._shape = (picture.shape[0], picture.shape[1], 3)
            self._encoder = _open_encoder(
                self.codec, self._shape[:2], self._pix_fmt, self._time_base, self._options
            )
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        if self.codec != "png":
            frame = self._reformatter.reformat(
                frame,
                format=self._pix_fmt,
                dst_colorspace=Colorspace.ITU601,
                dst_color_range=_RANGE[self.codec],
                threads=1,
            )
        frame.pts, frame.time_base = self.count, self._time_base
        self._encode(self._encoder, frame)
        self.count += 1

    def finish(self, step_to_frame: NDArray[np.int32]) -> CameraVideo:
        """The camera; nothing can be added afterwards.

        Args:
            step_to_frame: int32 [T], which picture each step shows, -1 for none.

        Raises:
            VideoError: no picture was added, or the encoder returned not one packet for each.
        """
        if self._encoder is None:
            raise VideoError("no picture to encode: leave out a camera that has none")
        self._encode(self._encoder, None)
        ordinals = np.array(self._ordinals, np.float64)  # None becomes NaN
        if not np.array_equal(ordinals, np.arange(self.count)):
            raise VideoError(
                f"{self._encoder.name} made {len(ordinals)} packets out of {self.count} pictures"
            )
        data = self._parts
        index = VideoIndex(
            codec=self.codec,
            width=self._shape[1],
            height=self._shape[0],
            pix_fmt=self._pix_fmt,
            time_base=(self._time_base.numerator, self._time_base.denominator),
            packet_size=np.array([len(part) for part in data], np.int32),
            packet_frame=np.arange(self.count, dtype=np.int32),
            packet_pts=np.arange(self.count, dtype=np.int64),
            packet_checksum=np.array([xxhash.xxh3_64_intdigest(part) for part in data], np.uint64),
            packet_key=np.array(self._keys, np.bool_),
            step_to_frame=step_to_frame,
            color_range=int(_RANGE[self.codec]),
            color_space=_SPACE_RGB if self.codec == "png" else _SPACE_SMPTE170M,
            quality=self._quality if self.codec == "png" else f"{self._quality} {self._pix_fmt}",
        )
        return CameraVideo(index=index, payload=b"".join(data))

    @property
    def _pix_fmt(self) -> str:
        even = self._shape[0] % 2 == 0 and self._shape[1] % 2 == 0
        return "rgb24" if self.codec == "png" else _YUV[self.codec, even]

    def _encode(self, encoder: VideoCodecContext, frame: VideoFrame | None) -> None:
        try:
            packets = encoder.encode(frame)
        except av.error.FFmpegError as error:
            raise VideoError(
                f"{encoder.name} refused picture {self.count} ({error.strerror})"
            ) from error
        for packet in packets:
            self._parts.append(bytes(packet))
            self._ordinals.append(packet.pts)
            self._keys.append(packet.is_keyframe)


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
