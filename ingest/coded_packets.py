"""Video that came message by message, a coded frame in each, without a container."""

import io
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

import av
import numpy as np
from av.container import InputContainer

from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_file import VideoFile
from lake.video_nal import is_clean_start

_FORMATS: Final = {"h264": "h264", "hevc": "hevc", "av1": "obu"}
_TICK: Final = Fraction(1, 1000)


def packets_video(packets: Sequence[bytes], codec: str) -> CameraVideo:
    """One camera of coded frames in display order: no B-frames, headers before key frames.

    That is what `foxglove.CompressedVideo` and Rerun's `VideoStream` promise. Frames before the
    first key frame cannot be decoded and are left out: their messages show none (-1).

    Args:
        packets: H.264 or H.265 as Annex-B, AV1 as temporal units.
        codec: `h264`, `hevc` or `av1`.

    Returns:
        Packets with `step_to_frame` of each message.

    Raises:
        VideoError: another codec, no key frame, or not one frame for each message.
    """
    if codec not in _FORMATS:
        raise VideoError(f"codec {codec}: messages of {', '.join(_FORMATS)} are known")
    clean = (is_clean_start(codec, memoryview(packet), 0) for packet in packets)
    first = next((number for number, starts in enumerate(clean) if starts), None)
    if first is None:
        raise VideoError(f"{codec}: no key frame in {len(packets)} messages")
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        path = Path(folder) / "messages.mkv"
        frames = _mux(packets[first:], codec, path)
        if frames != len(packets) - first:
            raise VideoError(f"{codec}: {frames} frames in {len(packets) - first} messages")
        shown = np.maximum(np.arange(len(packets), dtype=np.int32) - first, -1)
        with VideoFile(path) as video:
            if video.num_frames != frames:
                raise VideoError(f"{frames} coded frames, of which {video.num_frames} can be shown")
            return video.cut(0, frames, shown.astype(np.int32))


def _mux(packets: Sequence[bytes], codec: str, path: Path) -> int:
    """Write a container with a tick for each frame; their number."""
    count = 0
    try:
        with (
            av.open(io.BytesIO(b"".join(packets)), format=_FORMATS[codec]) as source,
            av.open(str(path), "w") as container,
        ):
            assert isinstance(source, InputContainer)
            stream = source.streams.video[0]
            out = container.add_stream_from_template(stream)
            for packet in source.demux(stream):
                if packet.size:
                    packet.stream = out
                    packet.time_base = _TICK
                    packet.pts = packet.dts = count
                    container.mux(packet)
                    count += 1
    except (av.error.FFmpegError, IndexError) as error:
        raise VideoError(f"{codec} messages that cannot be read ({error})") from error
    return count
