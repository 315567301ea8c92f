"""A run of packets as a file in memory, for decoders that open files rather than take packets."""

import io
from fractions import Fraction
from typing import Final

import av
import numpy as np

from lake.errors import VideoError
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun

TICK: Final = Fraction(1, 1000)
# Where packets carry all that decoding needs (MPEG-4 after its header is put before them), a
# container that takes them as they are. MP4 wants more of VP8 and VP9.
_CONTAINERS: Final = {
    **dict.fromkeys(("h264", "hevc", "av1", "mpeg4", "mjpeg", "png"), "mp4"),
    **dict.fromkeys(("vp8", "vp9"), "matroska"),
}


def run_as_file(index: VideoIndex, run: DecodeRun, data: bytes | memoryview) -> bytes:
    """The packets of a run as a video file whose frames are one `TICK` apart.

    The n-th frame shown is the one with the n-th ordinal of the run.

    Args:
        index: the camera.
        run: as `decode_runs` made it for this index.
        data: exactly the bytes of packets [run.first_packet, run.stop_packet).

    Raises:
        VideoError: the codec needs headers out of band.
    """
    if index.codec not in _CONTAINERS:
        raise VideoError(
            f"packets of {index.codec} need headers beside them, which a decoder of files is not"
            " given here: decode this camera with PyAV (decode_device=None)"
        )
    packets = slice(run.first_packet, run.stop_packet)
    shown = np.argsort(np.argsort(index.packet_frame[packets]))  # which of the run's, from 0
    # A packet may not be shown before its turn to be decoded.
    shown += max(0, int((np.arange(len(shown)) - shown).max()))
    header = index.extradata if index.codec == "mpeg4" else b""
    view, at = memoryview(data), 0
    file = io.BytesIO()
    name = _CONTAINERS[index.codec]
    # An edit list would hide pictures that are shown before the run's key picture, and so shift
    # the places of all others.
    options = {"use_editlist": "0"} if name == "mp4" else {}
    with av.open(file, "w", format=name, options=options) as container:
        stream = container.add_mux_stream(index.codec, width=index.width, height=index.height)
        sizes, keys = index.packet_size[packets].tolist(), index.packet_key[packets].tolist()
        for turn, (pts, size, key) in enumerate(zip(shown.tolist(), sizes, keys, strict=True)):
            content = view[at : at + size]
            whole = header + content if header and key else content
            packet = av.Packet(whole)  # type: ignore[arg-type]  # any buffer will do
            packet.stream, packet.time_base = stream, TICK
            packet.pts, packet.dts, packet.duration, packet.is_keyframe = pts, turn, 1, key
            container.mux(packet)
            at += size
    return file.getvalue()
