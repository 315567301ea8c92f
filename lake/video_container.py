"""What a container's outer boxes tell that a demuxer keeps to itself: missing bytes and rotation.

Sources: ISO/IEC 14496-12 (boxes, `tkhd` matrix), RFC 8794 and RFC 9559 (EBML, Matroska segment),
Microsoft RIFF.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_IDENTITY = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_LEAST_BOX = 8
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def missing_bytes(path: Path) -> int:
    """How many bytes the outermost boxes of an MP4, Matroska or AVI file announce beyond its end.

    0 for a whole file, for containers that state no length, and for a fragmented MP4 that ends
    right behind a fragment, as a recording that was stopped there would.
    """
    end = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        if head[4:8] in {b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip", b"styp"}:
            kind, _, last = max(_boxes(file, 0, end), key=lambda box: box[2], default=(b"", 0, end))
            if last == end and kind == b"moof":
                return _LEAST_BOX  # of the media that this fragment describes
            return last - end if last >= end else _missing_header(file, last, end)
        if head[:4] == _EBML:
            return max(0, _segment_stop(file) - end)
        if head[:4] == b"RIFF":
            return max(0, 8 + int.from_bytes(head[4:8], "little") - end)
    return 0


def _missing_header(file: BinaryIO, start: int, end: int) -> int:
    """How many bytes a box that begins at `start` lacks of its own header, 0 for none."""
    file.seek(start)
    head = file.read(16)
    size = 16 if head[:4] == b"\0\0\0\1" else _LEAST_BOX
    return max(0, size - (end - start))


def may_be_rotated(path: Path) -> bool:
    """False where the file is an MP4 whose tracks all carry the identity matrix."""
    end = path.stat().st_size
    with path.open("rb") as file:
        found = False
        for kind, start, stop in _boxes(file, 0, end):
            if kind != b"moov":
                continue
            for track, track_start, track_stop in _boxes(file, start, stop):
                if track != b"trak":
                    continue
                for inner, at, inner_stop in _boxes(file, track_start, track_stop):
                    if inner == b"tkhd":
                        file.seek(at)
                        found = True
                        if _IDENTITY not in file.read(inner_stop - at):
                            return True
    return not found


def _boxes(file: BinaryIO, start: int, stop: int) -> Iterator[tuple[bytes, int, int]]:
    """Type, payload start and announced end of every ISO box between two offsets."""
    while start + 8 <= stop:
        file.seek(start)
        head = file.read(16)
        size, kind, payload = int.from_bytes(head[:4], "big"), head[4:8], start + 8
        if size == 1 and len(head) == 16:
            size, payload = int.from_bytes(head[8:16], "big"), start + 16
        if size == 0:  # up to the end of the file
            size = stop - start
        if size < payload - start:
            return
        yield kind, payload, start + size
        start += size


def _segment_stop(file: BinaryIO) -> int:
    """Announced end of a Matroska segment, 0 where its size is unknown (a live recording)."""
    file.seek(0)
    data = file.read(256)
    at, size = 4, 0
    for identifier in (_EBML, _SEGMENT):
        if data[at - 4 : at] != identifier or at >= len(data) or data[at] == 0:
            return 0
        width = 9 - data[at].bit_length()
        size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
        unknown = size == (1 << 7 * width) - 1
        at += width
        if identifier == _SEGMENT:
            return 0 if unknown else at + size
        at += size + 4
    return 0
