"""Which key packets are clean: a decoder started there shows what a decode of the whole file shows.

The key flag of a container is not enough. H.264 encoders also set it where an intra refresh begins,
and pictures after such a start are wrong for a while. Sources: ITU-T H.264 table 7-1 and D.2.8
(recovery point), ITU-T H.265 table 7-1 (IRAP pictures), AV1 bitstream specification 5.3 (OBUs).
"""

import re
from collections.abc import Iterator
from itertools import pairwise

_H264_IDR, _H264_SEI = 5, 6
_H265_IRAP = range(16, 24)
_SEI_RECOVERY_POINT = 6
_AV1_SEQUENCE_HEADER = 1
_AV1_FRAMES = (3, 6)
_START_CODE = re.compile(rb"\x00\x00\x01")


def length_size(codec: str, extradata: bytes) -> int:
    """Bytes of the NAL length prefix of an H.264 or H.265 stream, 0 where it is Annex-B."""
    if codec == "h264" and len(extradata) > 6 and extradata[0] == 1:
        return (extradata[4] & 3) + 1
    # hvcC may carry version 0 in files of early muxers, so look for the absent start code instead.
    if (
        codec == "hevc"
        and len(extradata) > 22
        and not extradata.startswith((b"\0\0\1", b"\0\0\0\1"))
    ):
        return (extradata[21] & 3) + 1
    return 0


def is_clean_start(codec: str, packet: memoryview, nal_length_size: int) -> bool:
    """Whether decoding can start at this key packet without changing any later picture.

    H.264: an IDR picture, or a recovery point that is exact at once. H.265: an IRAP picture. AV1: a
    sequence header. Other codecs: the container's key flag is all there is, so True.
    """
    if codec == "av1":
        return _has_sequence_header(packet)
    if codec == "h264":
        for nal in _nals(packet, nal_length_size):
            kind = nal[0] & 31
            if kind == _H264_IDR or (kind == _H264_SEI and _recovers_at_once(nal)):
                return True
            if 1 <= kind < _H264_IDR:
                return False
        return False
    if codec == "hevc":
        return any((nal[0] >> 1) & 63 in _H265_IRAP for nal in _nals(packet, nal_length_size))
    return True


def _nals(packet: memoryview, nal_length_size: int) -> Iterator[memoryview]:
    if nal_length_size == 0:
        starts = [match.end() for match in _START_CODE.finditer(packet)]
        for start, stop in pairwise([*starts, len(packet)]):
            if start < stop:
                yield packet[start:stop]
        return
    at = 0
    while at + nal_length_size < len(packet):
        size = int.from_bytes(packet[at : at + nal_length_size], "big")
        at += nal_length_size
        if size:
            yield packet[at : at + size]
        at += size


def _recovers_at_once(sei: memoryview) -> bool:
    """Whether an SEI NAL holds a recovery point that is exact from its own picture on."""
    at = 1
    while at + 2 < len(sei) and sei[at] != 0x80:  # 0x80: trailing bits
        kind = size = 0
        while at < len(sei) and sei[at] == 255:
            kind, at = kind + 255, at + 1
        kind, at = kind + sei[at], at + 1
        while at < len(sei) and sei[at] == 255:
            size, at = size + 255, at + 1
        if at + 1 >= len(sei):
            return False
        size, at = size + sei[at], at + 1
        if kind == _SEI_RECOVERY_POINT:
            return sei[at] & 0xC0 == 0xC0  # ue(v) 0 is the bit 1, then exact_match_flag
        at += size
    return False


def _has_sequence_header(packet: memoryview) -> bool:
    """Whether an AV1 temporal unit carries a sequence header before its first frame."""
    at = 0
    while at < len(packet):
        kind = (packet[at] >> 3) & 15
        if kind == _AV1_SEQUENCE_HEADER or kind in _AV1_FRAMES or not packet[at] & 2:
            return kind == _AV1_SEQUENCE_HEADER
        at += 2 if packet[at] & 4 else 1
        size = shift = 0
        while at < len(packet):
            size |= (packet[at] & 127) << shift
            shift += 7
            at += 1
            if packet[at - 1] < 128:
                break
        at += size
    return False
