"""Packets of a lake as MP4 stores them: codec headers in the file's header, NAL units by length.

Sources: ISO/IEC 14496-15 (H.264 and H.265 in MP4), ITU-T H.264 and H.265 annex B and table 7-1.
"""

import io
import re
from dataclasses import dataclass
from typing import Final

import av

from lake.errors import VideoError
from lake.video_index import VideoIndex

_START_CODE: Final = re.compile(b"\x00?\x00\x00\x01")
_PARAMETER_SETS: Final = {"h264": frozenset({7, 8}), "hevc": frozenset({32, 33, 34})}
_SLICES: Final = {"h264": range(1, 6), "hevc": range(32)}
_FRESH: Final = {"h264": frozenset({5}), "hevc": frozenset(range(16, 21))}  # IDR; IDR and BLA


@dataclass(frozen=True, kw_only=True)
class CodecHeader:
    """What a decoder must know before the first packet.

    Attributes:
        codec: `h264`, `hevc` or `av1`.
        seed: an MP4 of one packet, whose header holds it; a template for other files.
        extradata: the header itself.
        parameter_sets: NAL units of H.264 and H.265 that the header holds, none for AV1.
        is_fresh: whether the first packet forgets all before it, so that the stream can follow
            another in one file.
    """

    codec: str
    seed: bytes
    extradata: bytes
    parameter_sets: tuple[bytes, ...]
    is_fresh: bool


def codec_header(index: VideoIndex, first_packet: bytes) -> CodecHeader:
    """The header of a camera's stream, by FFmpeg from its first packet.

    Raises:
        VideoError: the packet has no header.
    """
    parameter_sets: tuple[bytes, ...] = ()
    is_fresh = True
    data = first_packet
    if index.codec in _PARAMETER_SETS:
        nals = _nals(first_packet)
        parameter_sets = _leading_parameter_sets(index.codec, nals)
        is_fresh = any(_kind(index.codec, nal) in _FRESH[index.codec] for nal in nals)
        slices = [nal for nal in nals if _kind(index.codec, nal) in _SLICES[index.codec]]
        # With start codes of three bytes, or FFmpeg takes a zero of the next as part of a NAL unit.
        data = b"".join(b"\0\0\1" + nal for nal in (*parameter_sets, *slices))
    buffer = io.BytesIO()
    try:
        with av.open(buffer, "w", format="mp4") as container:
            stream = container.add_mux_stream(
                index.codec, rate=1, width=index.width, height=index.height
            )
            packet = av.Packet(data)
            packet.pts = packet.dts = 0
            packet.duration, packet.is_keyframe, packet.stream = 1, True, stream
            container.mux(packet)
        seed = buffer.getvalue()
        with av.open(io.BytesIO(seed)) as container:
            extradata = container.streams.video[0].codec_context.extradata
    except (av.error.FFmpegError, IndexError) as error:
        raise VideoError(f"no {index.codec} header in the first packet ({error})") from error
    if not extradata or (index.codec in _PARAMETER_SETS and not parameter_sets):
        raise VideoError(f"no {index.codec} header in the first packet")
    return CodecHeader(
        codec=index.codec,
        seed=seed,
        extradata=extradata,
        parameter_sets=parameter_sets,
        is_fresh=is_fresh,
    )


def mp4_packet(header: CodecHeader, packet: memoryview) -> bytes:
    """A packet as it stands in a file with this header: its copy, but for how NAL units are parted.

    Parameter sets equal to the header's are left to it; others stay where they are.
    """
    if header.codec not in _PARAMETER_SETS:
        return bytes(packet)
    nals = _nals(packet)
    known = header.parameter_sets
    if tuple(nals[: len(known)]) == known:
        nals = nals[len(known) :]
    return b"".join(len(nal).to_bytes(4, "big") + nal for nal in nals)


def _nals(packet: bytes | memoryview) -> list[bytes]:
    before, *nals = _START_CODE.split(packet)
    if before or not nals:
        raise VideoError("a packet does not begin with a NAL unit")
    return [bytes(nal) for nal in nals]


def _leading_parameter_sets(codec: str, nals: list[bytes]) -> tuple[bytes, ...]:
    count = 0
    while count < len(nals) and _kind(codec, nals[count]) in _PARAMETER_SETS[codec]:
        count += 1
    return tuple(nals[:count])


def _kind(codec: str, nal: bytes) -> int:
    if not nal:
        return -1
    return nal[0] & 31 if codec == "h264" else (nal[0] >> 1) & 63
