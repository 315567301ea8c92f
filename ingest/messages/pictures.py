"""Pictures of one channel, taken one by one and packed at once: what is held are coded bytes.

Sources: sensor_msgs/CompressedImage; compressed_depth_image_transport (`ConfigHeader`: a 32-bit
integer and two floats before the PNG); foxglove.CompressedImage, RawImage, CompressedVideo.
"""

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ingest.coded_packets import packets_video
from ingest.depth_png import PngEncoder
from ingest.messages.pixels import PixelFormat, demosaiced, pixel_format, read_pixels
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_encode import PictureEncoder
from lake.video_images import PicturePackets, images_video, picture_codec

Images = Literal["h264", "png"]

_LABEL_FPS: Final = 30.0  # of the time base of encoded pictures, whose steps have their own times
_DEPTH_HEADER: Final = struct.Struct("<iff")
_PNG: Final = b"\x89PNG"
_RAW_TYPES: Final = ("Image", "RawImage")
_TYPES: Final = (*_RAW_TYPES, "CompressedImage", "CompressedVideo", "")
_CODECS: Final = {"h264": "h264", "h265": "hevc", "hevc": "hevc", "av1": "av1", "vp9": "vp9"}


class Track(Protocol):
    """Takes the pictures of a camera.

    Attributes:
        is_depth: known once a picture was taken.
        conventions: facts about what is kept, without the camera's name.
    """

    is_depth: bool
    conventions: dict[str, str]

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take the picture of a message; raises VideoError, and does not take it, if it is bad."""

    def finish(self, shown: NDArray[np.int32]) -> CameraVideo:
        """The camera; `shown` has the picture of each message, -1 where it was bad."""


@dataclass(kw_only=True)
class RawTrack:
    """Pixels, encoded once; depth and floats are kept to the bit in PNG.

    Attributes:
        images: how pictures are kept. With `png` a colour filter array stays one, as grey.
        topic_is_depth: whether 16-bit grey that is not said to be depth is some.
    """

    images: Images
    topic_is_depth: bool
    is_depth: bool = False
    conventions: dict[str, str] = field(default_factory=dict)
    _encoding: str = ""
    _pixels: PixelFormat | None = None
    _encoder: PictureEncoder | PngEncoder | None = None

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take a picture: `encoding`, and what `read_pixels` needs."""
        fields = {**fields, "data": _view_of(fields["data"])}
        encoding = str(fields["encoding"])
        if self._pixels is None or encoding != self._encoding:
            found = pixel_format(encoding)
            if self._pixels is not None:
                raise VideoError(f"pixels in {encoding!r}, before in {self._encoding!r}")
            read_pixels(fields, found)  # nothing is settled by a picture that cannot be read
            self._settle(encoding, found)
        assert self._pixels is not None
        assert self._encoder is not None
        picture = read_pixels(fields, self._pixels)
        if self._pixels.kind == "float32":
            picture = picture.view(np.uint8).reshape(*picture.shape, 4)
        elif self._pixels.kind == "mosaic" and isinstance(self._encoder, PictureEncoder):
            picture = demosaiced(picture, self._pixels.packed)
        self._encoder.add(picture)

    def finish(self, shown: NDArray[np.int32]) -> CameraVideo:
        """The camera."""
        if isinstance(self._encoder, PngEncoder):
            return images_video(self._encoder.finish(), step_to_frame=shown)
        if self._encoder is None:
            raise VideoError("no picture")
        return self._encoder.finish(shown)

    def _settle(self, encoding: str, pixels: PixelFormat) -> None:
        self._encoding, self._pixels = encoding, pixels
        if pixels.kind == "gray16":
            self._encoder = PngEncoder("gray16")
            self.is_depth = self.topic_is_depth or encoding.lower() == "16uc1"
        elif pixels.kind == "float32":
            self._encoder, self.is_depth = PngEncoder("rgba"), True
            self.conventions["pixels"] = "float32, little endian, its bytes as RGBA"
        elif pixels.kind == "mosaic" and self.images == "png":
            self._encoder = PngEncoder("gray")
            self.conventions["pixels"] = f"colour filter array {encoding}"
        else:
            self._encoder = PictureEncoder(fps=_LABEL_FPS, codec=self.images)
            if pixels.packed:
                self.conventions["recorded_as"] = encoding


@dataclass(kw_only=True)
class CodedTrack:
    """JPEG and PNG, kept byte for byte; compressed depth without its header."""

    is_depth: bool = False
    conventions: dict[str, str] = field(default_factory=dict)
    _packets: PicturePackets = field(default_factory=PicturePackets)
    _depth: tuple[float, float] | None = None

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take a picture: `data`, and `format` for the kind of compressed depth."""
        data, about = bytes(_view_of(fields["data"])), str(fields.get("format", ""))
        if "compressedDepth" not in about:
            self._packets.add(data)
            return
        if data[:4] == _PNG:
            self._packets.add(data)
            self.is_depth = True
            return
        if data[_DEPTH_HEADER.size : _DEPTH_HEADER.size + 4] != _PNG:
            raise VideoError(f"compressed depth of {about!r} that is no PNG")
        kind, a, b = _DEPTH_HEADER.unpack_from(data)
        if about.startswith("32FC1") or kind == 1:
            if self._depth not in {None, (a, b)}:
                raise VideoError(f"inverse depth by A={a:g} B={b:g}, before by {self._depth}")
            self._depth = (a, b)
            self.conventions["pixels"] = f"inverse depth: metres = {a:.9g} / (value - {b:.9g})"
        self._packets.add(data[_DEPTH_HEADER.size :])
        self.is_depth = True

    def finish(self, shown: NDArray[np.int32]) -> CameraVideo:
        """The camera."""
        video = self._packets.finish(shown)
        self.is_depth = self.is_depth or video.index.pix_fmt.startswith("gray16")
        return video


@dataclass(kw_only=True)
class VideoTrack:
    """Coded video, a frame in each message."""

    is_depth: bool = False
    conventions: dict[str, str] = field(default_factory=dict)
    _codec: str = ""
    _packets: list[bytes] = field(default_factory=list)

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take a packet: `data` and `format`."""
        codec = video_codec(str(fields.get("format", "")))
        data = bytes(_view_of(fields["data"]))
        if not codec or (self._codec and codec != self._codec):
            raise VideoError(f"video in {fields.get('format')!r}, before {self._codec or 'none'}")
        if not data:
            raise VideoError("a message without data")
        self._codec = codec
        self._packets.append(data)

    def finish(self, shown: NDArray[np.int32]) -> CameraVideo:
        """The camera."""
        video = packets_video(self._packets, self._codec)
        frames = np.append(video.index.step_to_frame, np.int32(-1))  # -1 stays -1
        index = replace(video.index, step_to_frame=frames[shown])
        return CameraVideo(index=index, payload=video.payload)


def video_codec(name: str) -> str:
    """FFmpeg's name of the codec that a message's `format` names, "" for none."""
    return next((codec for word, codec in _CODECS.items() if word in name.lower()), "")


def track_of(kind: str, fields: Mapping[str, Any], *, topic: str, images: Images) -> Track | None:
    """What takes the pictures of a channel, None where its messages are none.

    Args:
        kind: type of the messages; "" where there is no schema, so that the fields decide.
        fields: of its first message.
        topic: of the channel.
        images: how raw pictures are kept.
    """
    name = kind.replace("/", ".").rpartition(".")[2]
    data = fields.get("data")
    if name not in _TYPES or not isinstance(data, (str, bytes, memoryview)):
        return None
    if fields.keys() >= {"encoding", "width", "height", "step"} and name in {*_RAW_TYPES, ""}:
        return RawTrack(images=images, topic_is_depth="depth" in topic.lower())
    if name == "CompressedVideo" or video_codec(str(fields.get("format", ""))):
        return VideoTrack()
    if name in _RAW_TYPES or (not name and not _is_coded(data)):
        return None
    return CodedTrack()


def _is_coded(data: str | bytes | memoryview) -> bool:
    try:
        return picture_codec(bytes(_view_of(data))) is not None
    except VideoError:
        return False


def _view_of(data: str | bytes | memoryview) -> bytes | memoryview:
    """Bytes of a picture; JSON has them as base64."""
    if not isinstance(data, str):
        return data
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VideoError(f"data that is no base64 ({error})") from error
