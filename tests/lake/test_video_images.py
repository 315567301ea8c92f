"""Compressed pictures are kept byte for byte, and only if each is whole."""

import struct
import zlib
from fractions import Fraction
from typing import Literal

import av
import pytest
from av.video.frame import VideoFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.errors import VideoError
from lake.video_images import images_video, picture_codec
from tests.lake.video_clips import decoded_frames, fingerprint, pictures, steps

Codec = Literal["mjpeg", "png"]
_NATIVE: dict[Codec, str] = {"mjpeg": "yuvj420p", "png": "rgb24"}


def _compressed(
    codec: Codec, count: int = 4, size: tuple[int, int] = (48, 64), pix_fmt: str | None = None
) -> list[bytes]:
    made = []
    for picture in pictures(count, *size):
        encoder = av.CodecContext.create(codec, "w")
        assert isinstance(encoder, av.VideoCodecContext)
        encoder.height, encoder.width = size
        encoder.pix_fmt, encoder.time_base = pix_fmt or _NATIVE[codec], Fraction(1, 30)
        packets = encoder.encode(VideoFrame.from_ndarray(picture, format="rgb24"))
        made.append(b"".join(map(bytes, packets + encoder.encode(None))))
    return made


def _alone(codec: Codec, image: bytes) -> str:
    decoder = av.CodecContext.create(codec, "r")
    assert isinstance(decoder, av.VideoCodecContext)
    (frame,) = decoder.decode(av.Packet(image)) + decoder.decode(None)
    return fingerprint(frame)


@pytest.mark.parametrize("codec", ["mjpeg", "png"])
@pytest.mark.parametrize("size", [(48, 64), (17, 33), (8, 8)])
def test_kept_byte_for_byte(codec: Codec, size: tuple[int, int]) -> None:
    images = _compressed(codec, size=size)
    video = images_video(images, step_to_frame=steps(4))
    index = video.index
    assert (index.height, index.width, index.pix_fmt) == (*size, _NATIVE[codec])
    assert bytes(video.payload) == b"".join(images)
    assert index.quality == ""
    assert index.packet_key.all()
    truth = [_alone(codec, image) for image in images]
    assert [fingerprint(frame) for frame in decoded_frames(video, range(4))] == truth
    assert [fingerprint(frame) for frame in decoded_frames(video, [3, 1])] == [truth[3], truth[1]]


@pytest.mark.parametrize(
    ("codec", "pix_fmt"), [("mjpeg", "yuvj444p"), ("png", "gray16be"), ("png", "rgba")]
)
def test_pixel_formats(codec: Codec, pix_fmt: str) -> None:
    images = _compressed(codec, pix_fmt=pix_fmt)
    video = images_video(images, step_to_frame=steps(4))
    assert video.index.pix_fmt == pix_fmt
    assert fingerprint(decoded_frames(video, [2])[0]) == _alone(codec, images[2])


def test_a_padded_jpeg_keeps_its_padding() -> None:
    images = [image.ljust(9000, b"\0") for image in _compressed("mjpeg")]
    video = images_video(images, step_to_frame=steps(4))
    assert set(video.index.packet_size.tolist()) == {9000}
    assert fingerprint(decoded_frames(video, [1])[0]) == _alone("mjpeg", images[1])


@settings(max_examples=80, deadline=None)
@given(codec=st.sampled_from(["mjpeg", "png"]), share=st.floats(0, 0.999), padded=st.booleans())
def test_a_picture_cut_short_is_named(*, codec: Codec, share: float, padded: bool) -> None:
    images = _compressed(codec)
    short = images[2][: int(len(images[2]) * share)]
    images[2] = short.ljust(len(images[2]), b"\0") if padded else short
    with pytest.raises(VideoError, match=r"picture 2 \(\d+ bytes\): "):
        images_video(images, step_to_frame=steps(4))


@settings(max_examples=60, deadline=None)
@given(position=st.floats(0, 0.9999), mask=st.integers(1, 255))
def test_a_flipped_byte_in_a_png_is_named(position: float, mask: int) -> None:
    images = _compressed("png")
    broken = bytearray(images[1])
    broken[int(len(broken) * position)] ^= mask
    with pytest.raises(VideoError, match="picture 1 "):
        images_video([images[0], bytes(broken)], step_to_frame=steps(2))


@pytest.mark.parametrize("codec", ["mjpeg", "png"])
def test_another_size_or_layout_is_named(codec: Codec) -> None:
    images = _compressed(codec)
    other = "yuvj444p" if codec == "mjpeg" else "gray"
    for strange in (_compressed(codec, 1, (48, 62)), _compressed(codec, 1, pix_fmt=other)):
        with pytest.raises(VideoError, match=r"picture 4 .*another size or pixel layout"):
            images_video(images + strange, step_to_frame=steps(5))


def test_kinds_mixed_or_unknown_are_named() -> None:
    jpegs, pngs = _compressed("mjpeg"), _compressed("png")
    with pytest.raises(VideoError, match=r"picture 4 .*not a JPEG"):
        images_video(jpegs + pngs, step_to_frame=steps(8))
    with pytest.raises(VideoError, match=r"picture 4 .*not a PNG"):
        images_video(pngs + jpegs, step_to_frame=steps(8))
    with pytest.raises(VideoError, match=r"picture 0 .*neither JPEG nor PNG"):
        images_video([b"GIF89a"], step_to_frame=steps(1))


def test_codec_by_content() -> None:
    assert picture_codec(_compressed("mjpeg")[0]) == "mjpeg"
    assert picture_codec(_compressed("png")[0]) == "png"
    assert picture_codec(b"") is None
    assert picture_codec(b"\xff\xd8 and no marker") is None


def test_no_picture() -> None:
    with pytest.raises(VideoError, match="no picture"):
        images_video([], step_to_frame=steps(0))


def test_a_first_picture_the_decoder_refuses() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    image = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"no zlib here") + chunk(b"IEND", b"")
    with pytest.raises(VideoError, match="picture 0 "):
        images_video([image], step_to_frame=steps(1))
