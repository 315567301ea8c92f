"""Video of any length for benches: one short clip, encoded once, its packets repeated.

Encoding takes about a second; every repeat begins at a key picture that no other group of pictures
refers across, so the file is as good as one long recording.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

CLIP_FRAMES: Final = 240

Picture = NDArray[np.uint8]
Recorder = Literal["fast", "lerobot"]


@dataclass(frozen=True, kw_only=True)
class VideoShape:
    """What a camera records.

    Attributes:
        height, width: in pixels.
        fps: pictures per second.
        codec: PyAV encoder, `libx264` or `libsvtav1`.
        gop: distance of key frames in frames, a divisor of 240.
        recorder: `fast` pans over a texture and encodes with few features of the codec; `lerobot`
            shows moving blocks on a noisy table top, encoded as LeRobot's recorder does by default
            (constant quality 30, the encoder's own B-frames).
    """

    height: int
    width: int
    fps: int
    codec: str
    gop: int
    recorder: Recorder

    def options(self) -> Mapping[str, str]:
        """Options of the encoder."""
        options = {"g": str(self.gop), "crf": "30"}
        if self.codec != "libx264":
            return options | {"preset": "12"}
        if self.recorder == "lerobot":
            return options | {
                "sc_threshold": "0"
            }  # or a clip would have more key frames than asked
        return options | {"bf": "0", "preset": "veryfast"}


def panned(height: int, width: int, seed: int) -> Sequence[Picture]:
    """A clip of uint8 [height, width, 3] pictures: a view that circles over a texture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(60, 196, (height // 20 + 8, width // 20 + 8, 3))
    scene = np.kron(coarse, np.ones((20, 20, 1), np.int64))
    frames = []
    for t in range(CLIP_FRAMES):
        dy, dx = (round(40 + 30 * f(2 * np.pi * t / CLIP_FRAMES)) for f in (np.sin, np.cos))
        view = scene[dy : dy + height, dx : dx + width]
        frames.append(np.ascontiguousarray(view.astype(np.uint8)))
    return frames


def table_top(height: int, width: int, seed: int) -> Sequence[Picture]:
    """A clip of uint8 [height, width, 3] pictures: four blocks that wander over a table.

    The table has fine texture and the camera noise, so that packets have the sizes and cost of
    recordings (1.0 kB per frame of H.264 at 320x240, 9 kB of AV1, with a key frame every 2; 0.3 kB
    of H.264 with one every 30). They follow from the seed; packets from the encoder's version too.
    """
    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 200, (8, 10, 3)).astype(np.float32)
    y, x = np.linspace(0, 7, height), np.linspace(0, 9, width)
    top, left = np.minimum(y.astype(int), 6), np.minimum(x.astype(int), 8)
    fy, fx = (y - top)[:, None, None], (x - left)[None, :, None]
    upper = coarse[top][:, left] * (1 - fx) + coarse[top][:, left + 1] * fx
    lower = coarse[top + 1][:, left] * (1 - fx) + coarse[top + 1][:, left + 1] * fx
    table = upper * (1 - fy) + lower * fy + rng.normal(0, 6, (height, width, 1))
    places = rng.uniform(-1, 1, 8) + np.cumsum(rng.normal(0, 0.02, (CLIP_FRAMES, 8)), axis=0)
    colours = rng.integers(10, 250, (4, 3))
    frames = []
    for place in places:
        picture = table.copy()
        for block, colour in enumerate(colours):
            cx = int(width * (0.5 + 0.4 * np.sin(place[block])))
            cy = int(height * (0.5 + 0.4 * np.cos(place[block + 4])))
            half = max(1, height // 24) + block * height // 60
            picture[max(cy - half, 0) : cy + half, max(cx - half, 0) : cx + half] = colour
        picture += rng.normal(0, 2.0, (height, width, 1))
        frames.append(np.clip(picture, 0, 255).astype(np.uint8))
    return frames


def write_looped(path: Path, shape: VideoShape, frames: int, *, seed: int) -> None:
    """Write an MP4 file.

    Args:
        path: the file; its folder must exist.
        shape: what is recorded.
        frames: a multiple of the GOP where the encoder may reorder frames.
        seed: of the pictures.
    """
    tick = Fraction(1, shape.fps)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(shape.codec, rate=shape.fps, options=dict(shape.options()))
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = shape.width, shape.height, "yuv420p"
        stream.time_base = tick
        clip = _encode(stream, shape, seed)
        for begin in range(0, frames, CLIP_FRAMES):
            for packet in clip:
                if begin + packet.shown >= frames:
                    continue
                copy = av.Packet(packet.data)
                copy.stream, copy.time_base = stream, tick
                copy.pts, copy.dts = begin + packet.shown, begin + packet.decoded
                copy.duration, copy.is_keyframe = 1, packet.is_key
                container.mux(copy)


@dataclass(frozen=True, kw_only=True)
class _Packet:
    data: bytes
    shown: int
    decoded: int
    is_key: bool


def _encode(stream: VideoStream, shape: VideoShape, seed: int) -> list[_Packet]:
    draw = table_top if shape.recorder == "lerobot" else panned
    packets: list[av.Packet[VideoStream]] = []
    for index, picture in enumerate(draw(shape.height, shape.width, seed)):
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        frame.pts, frame.time_base = index, Fraction(1, shape.fps)
        packets += stream.encode(frame)
    packets += stream.encode(None)
    return [
        _Packet(
            data=bytes(packet),
            shown=_ticks(packet, packet.pts, shape.fps),
            decoded=_ticks(packet, packet.dts, shape.fps),
            is_key=packet.is_keyframe,
        )
        for packet in packets
    ]


def _ticks(packet: "av.Packet[VideoStream]", stamp: int | None, fps: int) -> int:
    assert stamp is not None
    assert packet.time_base is not None
    return round(stamp * packet.time_base * fps)
