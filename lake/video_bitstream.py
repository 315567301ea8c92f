"""Packets from which a decoder can start without out-of-band headers."""

from collections.abc import Iterable, Iterator

import numpy as np
from av.bitstream import BitStreamFilterContext
from av.packet import Packet
from av.video.stream import VideoStream
from numpy.typing import NDArray

from lake.errors import VideoError
from lake.video_nal import has_av1_sequence_header

# `dump_extra` puts the parameter sets in front of key frames that are no IDR pictures as well.
_ANNEX_B = {
    "h264": "h264_mp4toannexb,dump_extra=freq=keyframe",
    "hevc": "hevc_mp4toannexb,dump_extra=freq=keyframe",
}
_AV1C_BYTES = 4  # the fixed part of `av1C`; OBUs follow


def needs_extradata(codec: str) -> bool:
    """Whether packets of the codec are decoded with the stream's extradata."""
    return codec not in _ANNEX_B and codec != "av1"


def self_contained(
    stream: VideoStream, packets: "Iterable[Packet[VideoStream]]", clean: NDArray[np.bool_]
) -> Iterator[memoryview]:
    """The packets with their codec headers in band, as far as the codec has a way for that.

    H.264 and H.265 become Annex-B with parameter sets at every key frame; an AV1 temporal unit
    that starts a decode gets the sequence header of `av1C` if it lacks its own. Others are returned
    as they are and need the stream's extradata.

    Args:
        stream: where the packets come from.
        packets: consecutive packets, P of them.
        clean: bool [P], where decoding can start.

    Raises:
        VideoError: the packets cannot be written as Annex-B one by one.
    """
    codec = stream.codec.canonical_name
    if codec in _ANNEX_B:
        # A new filter for each call: it remembers which parameter sets it has already written.
        bitstream = BitStreamFilterContext(_ANNEX_B[codec], stream)
        for packet in packets:
            filtered = bitstream.filter(packet)
            if len(filtered) != 1:
                raise VideoError(
                    f"{stream.container.name}: a packet became {len(filtered)} as Annex-B;"
                    " re-encode the file"
                )
            yield memoryview(filtered[0])
        return
    header = (stream.codec_context.extradata or b"")[_AV1C_BYTES:] if codec == "av1" else b""
    for packet, start in zip(packets, clean.tolist(), strict=True):
        view = memoryview(packet)
        if header and start and not has_av1_sequence_header(view):
            view = memoryview(header + view)
        yield view
