"""Small generated videos, and what a plain decode of a file shows."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
import numpy as np
from av.bitstream import BitStreamFilterContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.episode import CameraVideo
from lake.video_decode import FrameDecoder
from lake.video_runs import decode_runs

DECODER = FrameDecoder()  # one for all tests, so that its reuse is tested by each


def pictures(count: int, height: int, width: int, seed: int = 0) -> Iterator[NDArray[np.uint8]]:
    """uint8 [H, W, 3] pictures of a moving texture; no two are equal."""
    random = np.random.default_rng(seed)
    shape = (height // 4 + 2, (width + count) // 4 + 3, 3)
    world = random.integers(0, 255, shape, np.uint8).repeat(4, 0).repeat(4, 1)
    for shift in range(count):
        yield np.ascontiguousarray(world[:height, shift : shift + width])


def write_clip(
    path: Path,
    codec: str,
    options: Mapping[str, str] | None = None,
    *,
    count: int = 40,
    size: tuple[int, int] = (48, 64),
    pix_fmt: str = "yuv420p",
    pts: Sequence[int] | None = None,
    container_options: Mapping[str, str] | None = None,
    format: str | None = None,  # noqa: A002  # PyAV's name
    later_packets: str | None = None,
) -> Path:
    """Encode a clip; `pts` are milliseconds, `later_packets` a filter for all but the first."""
    with av.open(str(path), "w", format=format, options=dict(container_options or {})) as container:
        stream = container.add_stream(codec, rate=30, options=dict(options or {}))
        assert isinstance(stream, av.VideoStream)
        (stream.height, stream.width), stream.pix_fmt = size, pix_fmt
        if pts is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        packets = []
        for number, picture in enumerate(pictures(count, *size)):
            frame = VideoFrame.from_ndarray(picture, format="rgb24")
            if pts is not None:
                frame.pts, frame.time_base = pts[number], Fraction(1, 1000)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        if later_packets is not None:
            edit = BitStreamFilterContext(later_packets, av.Codec(codec, "w"))
            packets[1:] = [part for packet in packets[1:] for part in edit.filter(packet)]
            for packet in packets:
                packet.stream = stream
        container.mux(packets)
    return path


def fingerprint(frame: VideoFrame) -> str:
    """Hash of everything a frame shows: format, size and the bytes of every plane."""
    digest = hashlib.blake2b(f"{frame.format.name} {frame.width}x{frame.height}".encode())
    sample_bytes = max((part.bits + 7) // 8 for part in frame.format.components)
    packed = 3 if frame.format.name in {"rgb24", "bgr24"} else 1
    for plane in frame.planes:
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
        shown = rows[: plane.height, : plane.width * sample_bytes * packed]
        digest.update(shown.tobytes())
    return digest.hexdigest()


def plain_decode(path: Path, stop: int | None = None) -> list[str]:
    """Fingerprints of the first `stop` frames of a file, decoded as anybody would."""
    with av.open(str(path)) as container:
        return [fingerprint(frame) for frame in islice(container.decode(video=0), stop)]


def decoded_frames(video: CameraVideo, wanted: Sequence[int]) -> list[VideoFrame]:
    """The wanted frames of a camera, by runs, in the order asked for."""
    offsets = video.index.packet_offsets()
    payload = memoryview(video.payload)
    found: dict[int, VideoFrame] = {}
    for run in decode_runs(video.index, wanted):
        data = payload[offsets[run.first_packet] : offsets[run.stop_packet]]
        found.update(DECODER.decode(video.index, run, data))
    return [found[frame] for frame in wanted]


def shows(video: CameraVideo, wanted: Sequence[int]) -> list[str]:
    """Fingerprints of the wanted frames."""
    return [fingerprint(frame) for frame in decoded_frames(video, wanted)]


def steps(count: int) -> NDArray[np.int32]:
    """A frame per step."""
    return np.arange(count, dtype=np.int32)
