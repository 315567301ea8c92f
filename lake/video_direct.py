"""Reading the packets of an MP4 by their byte positions, without demuxing it a second time.

An MP4 stores each packet as one run of bytes, so what a demuxer would return one by one can be read
in one piece, and the length prefixes of H.264 and H.265 turned to start codes for all packets at
once: about three times as many frames per second as through FFmpeg's bitstream filter. Sources:
ISO/IEC 14496-15 5.3.3 (avcC), 8.3.3 (hvcC).
"""

import os
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from lake.errors import VideoError
from lake.video_nal import length_size
from lake.video_table import PacketTable

_START_CODE = b"\0\0\0\1"
_PREFIX = 4  # bytes of a NAL length; as long as a start code, so packets keep their size
_AS_THEY_ARE = frozenset({"av1", "vp9", "mpeg4", "mjpeg"})


class DirectPackets:
    """Packets of one MP4 file, read by position."""

    def __init__(self, path: Path, table: PacketTable, parameter_sets: bytes | None) -> None:
        """Read `path`; `parameter_sets` (Annex-B) go before clean packets, None changes nothing."""
        self._path = path
        self._file: BinaryIO = path.open("rb", buffering=0)
        self._table = table
        self._parameter_sets = parameter_sets

    @classmethod
    def of(
        cls, path: Path, container: InputContainer, stream: VideoStream, table: PacketTable
    ) -> Self | None:
        """A reader where the file's bytes are the packets, None where only a demuxer will do."""
        if "mp4" not in container.format.name or not table.in_place:
            return None
        codec = stream.codec.canonical_name
        if codec in _AS_THEY_ARE:
            return cls(path, table, None)
        extradata = stream.codec_context.extradata or b""
        if length_size(codec, extradata) != _PREFIX:
            return None
        sets = _parameter_sets(codec, extradata)
        return cls(path, table, sets) if sets else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Packets of rows [start, stop) back to back, and their sizes.

        Returns:
            uint8 [sum of sizes] and int32 [stop - start]; H.264 and H.265 as Annex-B.

        Raises:
            VideoError: the file ends early, or NAL lengths do not add up to their packet.
        """
        size, clean = self._table.size[start:stop], self._table.clean[start:stop]
        sets = np.frombuffer(self._parameter_sets or b"", np.uint8)
        out_size = size + clean * len(sets)
        ends = np.cumsum(out_size)
        begins = ends - size  # of what the file holds of each packet, behind its parameter sets
        data: NDArray[np.uint8] = np.empty(int(ends[-1]), np.uint8)
        self._fill(data, begins, start, stop)
        if self._parameter_sets is not None:
            if not _write_start_codes(data, begins, ends):
                raise VideoError(
                    f"{self._path}: NAL lengths of packets {start}..{stop - 1} do not add up; the"
                    " file is damaged there, copy it again from its origin"
                )
            data[(begins[clean] - len(sets))[:, None] + np.arange(len(sets))] = sets
        return data, out_size.astype(np.int32)

    def _fill(
        self, data: NDArray[np.uint8], begins: NDArray[np.int64], start: int, stop: int
    ) -> None:
        """Read packets [start, stop) to `begins` in `data`, those without gaps in one piece."""
        position, size = self._table.position[start:stop], self._table.size[start:stop]
        apart = (np.diff(position) != size[:-1]) | (np.diff(begins) != size[:-1])
        first = np.flatnonzero(np.concatenate([[True], apart]))
        length = np.add.reduceat(size, first)
        view = data.data
        pieces = zip(begins[first].tolist(), position[first].tolist(), length.tolist(), strict=True)
        for at, where, count in pieces:
            self._read(view[at : at + count], where)

    def _read(self, view: memoryview, position: int) -> None:
        while view:
            count = os.preadv(self._file.fileno(), [view], position)
            if count == 0:
                raise VideoError(f"{self._path}: the file ends at byte {position}")
            view, position = view[count:], position + count


def _parameter_sets(codec: str, extradata: bytes) -> bytes:
    """The parameter sets of avcC or hvcC as Annex-B, empty where they cannot be read."""
    out = b""
    try:
        if codec == "h264":
            at = 5
            for mask in (31, 255):  # SPS, then PPS
                count, at = extradata[at] & mask, at + 1
                part, at = _annex_b(extradata, at, count)
                out += part
        else:
            at = 23
            for _ in range(extradata[22]):
                count = extradata[at + 1] << 8 | extradata[at + 2]
                part, at = _annex_b(extradata, at + 3, count)
                out += part
    except IndexError:
        return b""
    return out


def _annex_b(data: bytes, at: int, count: int) -> tuple[bytes, int]:
    """`count` NALs, each behind two bytes of length, with start codes; and where they end."""
    out = b""
    for _ in range(count):
        size = data[at] << 8 | data[at + 1]
        if at + 2 + size > len(data):
            raise IndexError
        out += _START_CODE + data[at + 2 : at + 2 + size]
        at += 2 + size
    return out, at


def _write_start_codes(
    data: NDArray[np.uint8], at: NDArray[np.int64], stop: NDArray[np.int64]
) -> bool:
    """Replace every NAL length in place, the n-th NAL of all packets at once.

    Args:
        data: uint8 [N], packets back to back.
        at: int64 [P], where each packet starts.
        stop: int64 [P], where each packet ends.

    Returns:
        False where lengths lead beyond the end of their packet.
    """
    while len(at):
        if (at + _PREFIX > stop).any():
            return False
        lengths = np.zeros(len(at), np.int64)
        for byte, value in enumerate(_START_CODE):
            lengths = lengths << 8 | data[at + byte]
            data[at + byte] = value
        at = at + _PREFIX + lengths
        if (at > stop).any():
            return False
        more = at < stop
        at, stop = at[more], stop[more]
    return True
