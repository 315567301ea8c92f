"""Packets from which a decoder can start without out-of-band headers."""

from collections.abc import Iterable, Iterator

from av.bitstream import BitStreamFilterContext
from av.packet import Packet
from av.video.stream import VideoStream

from lake.errors import VideoError

# `dump_extra` puts the parameter sets in front of key frames that are no IDR pictures as well.
_ANNEX_B = {
    "h264": "h264_mp4toannexb,dump_extra=freq=keyframe",
    "hevc": "hevc_mp4toannexb,dump_extra=freq=keyframe",
}


def needs_extradata(codec: str) -> bool:
    """Whether packets of the codec are decoded with the stream's extradata."""
    return codec not in _ANNEX_B and codec != "av1"


def self_contained(
    stream: VideoStream, packets: "Iterable[Packet[VideoStream]]"
) -> Iterator[memoryview]:
    """The packets with their codec headers in band, as far as the codec has a way for that.

    H.264 and H.265 become Annex-B with parameter sets at every key frame. AV1 temporal units have
    theirs wherever decoding can start. Others are returned as they are and need the stream's
    extradata.

    Raises:
        VideoError: the packets cannot be written as Annex-B one by one.
    """
    codec = stream.codec.canonical_name
    if codec not in _ANNEX_B:
        yield from (memoryview(packet) for packet in packets)
        return
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
