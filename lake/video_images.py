"""Cameras recorded as compressed pictures: JPEG or PNG files, kept byte for byte.

Sources: ITU-T T.81 annex B (JPEG markers), ISO/IEC 15948 (PNG chunks).
"""

import zlib
from collections.abc import Sequence
from typing import Literal

import av
import numpy as np
import xxhash
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_index import VideoIndex

PictureCodec = Literal["mjpeg", "png"]

_JPEG_START = b"\xff\xd8"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_SOS, _EOI = 0xDA, 0xD9


def picture_codec(image: bytes) -> PictureCodec | None:
    """FFmpeg's name of the picture's codec by its first bytes, None for neither JPEG nor PNG."""
    if image.startswith(_JPEG_START + b"\xff"):
        return "mjpeg"
    return "png" if image.startswith(_PNG_SIGNATURE) else None


def images_video(images: Sequence[bytes], *, step_to_frame: NDArray[np.int32]) -> CameraVideo:
    """Make one camera of JPEG or PNG pictures, a frame per picture, without re-encoding.

    Args:
        images: the files; a JPEG may be followed by zero bytes (padded to a common length).
        step_to_frame: int32 [T], which picture each step shows, -1 for none.

    Raises:
        VideoError: no picture, or one (its number is named) that is neither JPEG nor PNG, of
            another kind, size or pixel layout than the first, not complete, or damaged.
    """
    if not images:
        raise VideoError("no picture: leave out a camera that has none")
    packets = PicturePackets()
    for number, image in enumerate(images):
        try:
            packets.add(image)
        except VideoError as error:
            raise VideoError(f"picture {number} ({len(image)} bytes): {error}") from error
    return packets.finish(step_to_frame)


class PicturePackets:
    """What `images_video` does, for pictures that come one by one; a bad one can be left out."""

    def __init__(self) -> None:
        self._images: list[bytes] = []
        self._checksums: list[int] = []
        self._codec: PictureCodec | None = None
        self._layout = b""

    def add(self, image: bytes) -> None:
        """Take the next picture.

        Raises:
            VideoError: it is neither JPEG nor PNG, of another kind, size or pixel layout than the
                first, not complete, or damaged; it is not taken.
        """
        codec = self._codec or picture_codec(image)
        if codec is None:
            raise VideoError("neither JPEG nor PNG")
        try:
            layout = (_jpeg_layout if codec == "mjpeg" else _png_layout)(image)
        except ValueError as error:
            raise VideoError(str(error)) from error
        except IndexError as error:
            raise VideoError("cut short inside its headers") from error
        if self._images and layout != self._layout:
            raise VideoError(
                f"another size or pixel layout than picture 0 ({layout.hex()}, not"
                f" {self._layout.hex()}); store it as a camera of its own"
            )
        self._codec, self._layout = codec, layout
        self._images.append(image)
        self._checksums.append(xxhash.xxh3_64_intdigest(image))

    def finish(self, step_to_frame: NDArray[np.int32]) -> CameraVideo:
        """The camera of the pictures taken.

        Raises:
            VideoError: none was taken, or the first cannot be decoded.
        """
        if self._codec is None:
            raise VideoError("no picture: leave out a camera that has none")
        frame = _decode(self._images[0], self._codec)
        count = len(self._images)
        index = VideoIndex(
            codec=self._codec,
            width=frame.width,
            height=frame.height,
            pix_fmt=frame.format.name,
            time_base=(1, 1),
            packet_size=np.array([len(image) for image in self._images], np.int32),
            packet_frame=np.arange(count, dtype=np.int32),
            packet_pts=np.arange(count, dtype=np.int64),
            packet_checksum=np.array(self._checksums, np.uint64),
            packet_key=np.ones(count, np.bool_),
            step_to_frame=step_to_frame,
            color_range=int(frame.color_range),
            color_space=int(frame.colorspace),
            color_primaries=int(frame.color_primaries),
            color_transfer=int(frame.color_trc),
        )
        return CameraVideo(index=index, payload=b"".join(self._images))


def _decode(image: bytes, codec: str) -> VideoFrame:
    decoder = av.CodecContext.create(codec, "r")
    assert isinstance(decoder, VideoCodecContext)
    decoder.thread_count = 1
    try:
        frames = decoder.decode(av.Packet(image)) + decoder.decode(None)
    except av.error.FFmpegError as error:
        raise VideoError(f"picture 0 cannot be decoded ({error.strerror})") from error
    if len(frames) != 1:
        raise VideoError(f"picture 0 decodes to {len(frames)} frames")
    return frames[0]


def _jpeg_layout(image: bytes) -> bytes:
    """Precision, size and components of a complete JPEG, as in its frame header.

    Raises:
        ValueError: not a JPEG, no frame header, or no end-of-image marker.
    """
    if not image.startswith(_JPEG_START):
        raise ValueError("not a JPEG (no start-of-image marker)")
    layout, at = b"", 2
    while True:
        if image[at] != 0xFF:
            raise ValueError(f"damaged JPEG (no marker at byte {at})")
        marker = image[at + 1]
        if marker == 0xFF or marker in _JPEG_ALONE:  # fill byte, or nothing follows
            at += 1 if marker == 0xFF else 2
            continue
        if marker == _SOS:
            break
        if marker == _EOI:
            raise ValueError("damaged JPEG (it ends before its picture)")
        size = int.from_bytes(image[at + 2 : at + 4], "big")
        if marker in _JPEG_FRAME_HEADERS:
            layout = image[at + 4 : at + 2 + size]
        at += 2 + size
    if not layout:
        raise ValueError("damaged JPEG (no frame header)")
    # Picture data never holds it: FF is stuffed there. From the end, where it mostly is.
    if image.rfind(b"\xff\xd9", at) < 0:
        raise ValueError("incomplete JPEG (no end-of-image marker)")
    return layout


def _png_layout(image: bytes) -> bytes:
    """Size, depth and colour type of a complete PNG: its IHDR, with every chunk's CRC checked.

    Raises:
        ValueError: not a PNG, a chunk that does not match its CRC, or no IEND chunk.
    """
    if not image.startswith(_PNG_SIGNATURE):
        raise ValueError("not a PNG (no signature)")
    layout, at = b"", len(_PNG_SIGNATURE)
    while at + 12 <= len(image):
        size = int.from_bytes(image[at : at + 4], "big")
        body = image[at + 4 : at + 8 + size]
        crc = int.from_bytes(image[at + 8 + size : at + 12 + size], "big")
        if len(body) != 4 + size or zlib.crc32(body) != crc:
            raise ValueError(f"damaged PNG (chunk at byte {at} does not match its CRC)")
        if body[:4] == b"IHDR":
            layout = body[4:]
        if body[:4] == b"IEND" and layout:
            return layout
        at += 12 + size
    raise ValueError("incomplete PNG (no end chunk)")
