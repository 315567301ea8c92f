"""Opening a video file and reading ranges of its packets."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream
from numpy.typing import NDArray

from lake.errors import VideoError
from lake.video_bitstream import self_contained
from lake.video_container import missing_bytes
from lake.video_direct import DirectPackets
from lake.video_table import PacketTable, read_table

_READ_ON = 256  # reading over this many packets costs about as much as a seek


class PacketReader:
    """The first video stream of a file; knows every packet, holds none.

    Attributes:
        path: the file.
        stream: PyAV's stream.
        table: the packets, read at opening.
    """

    def __init__(self, path: Path) -> None:
        """Open and demux `path`; raises VideoError."""
        self.path = path
        self._container, self.stream = _open(path)
        self._stamp = _stamp(path)
        self._packets: Iterator[Packet[VideoStream]] = iter(())
        self._next_row = -1
        try:
            self.table: PacketTable = read_table(path, self._container, self.stream)
        except VideoError:
            self._container.close()
            raise
        self._direct = DirectPackets.of(path, self._container, self.stream, self.table)

    def close(self) -> None:
        """Close the file."""
        self._container.close()
        if self._direct is not None:
            self._direct.close()

    def read(self, start: int, stop: int) -> tuple[memoryview, NDArray[np.int32]]:
        """Packets of rows [start, stop), as `lake.video_bitstream` makes them.

        Ranges in ascending order are one pass over the file; others seek.

        Returns:
            The packets back to back, and int32 [stop - start], the size of each.

        Raises:
            VideoError: the file is not what it was when it was opened, or a packet is damaged.
        """
        if _stamp(self.path) != self._stamp:
            raise self._changed(start)
        if self._direct is not None:
            data, sizes = self._direct.read(start, stop)
            return data.data, sizes
        payload, lengths = bytearray(), []
        try:
            for packet in self_contained(self.stream, self._packets_of(start, stop)):
                payload += packet
                lengths.append(packet.nbytes)
        except (av.error.FFmpegError, OSError) as error:
            raise VideoError(f"{self.path}: a packet cannot be copied ({error})") from error
        return memoryview(payload), np.array(lengths, np.int32)

    # Quoted, since PyAV's Packet is generic for type checkers only.
    def _packets_of(self, start: int, stop: int) -> "Iterator[Packet[VideoStream]]":
        """Packets of rows [start, stop), each checked against the table."""
        if not 0 <= self._next_row <= start <= self._next_row + _READ_ON:
            self._seek(start)
        for _ in range(start - self._next_row):
            next(self._packets)
        self._next_row = -1  # until the range is through
        for row in range(start, stop):
            packet = next(self._packets, None)
            if packet is None or packet.pts != self.table.pts[row]:
                raise self._changed(row)
            yield packet
        self._next_row = stop

    def _seek(self, row: int) -> None:
        """Stand at a packet at or before `row`, and say which in `_next_row`."""
        self._container.seek(int(self.table.dts[row]), stream=self.stream)
        if self._stand() > row:  # the container's own index led past it: read from the beginning
            self._container.close()
            self._container, self.stream = _open(self.path)
            if self._stand() > row:
                raise self._changed(row)

    def _stand(self) -> int:
        """Take up the packets from where the container stands; the row of the first one."""
        packets = self._container.demux(self.stream)
        first = next(packets)
        rows = np.flatnonzero(self.table.pts == first.pts)
        self._next_row = int(rows[0]) if len(rows) else len(self.table.pts)
        self._packets = chain((first,), packets)
        return self._next_row

    def _changed(self, row: int) -> VideoError:
        self._next_row = -1
        return VideoError(
            f"{self.path}: packet {row} or one after it is not what it was when the file was"
            " opened; do not write to a recording while it is read"
        )


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _open(path: Path) -> tuple[InputContainer, VideoStream]:
    if not path.is_file():
        raise VideoError(f"{path}: no such video file")
    if path.stat().st_size == 0:
        raise VideoError(f"{path}: the video file is empty (0 bytes)")
    try:
        container = av.open(str(path), metadata_errors="replace")
    except (av.error.FFmpegError, OSError) as error:
        raise _unreadable(path, f"not a readable video ({error.strerror or error})") from error
    streams = container.streams.video
    context: object = streams[0].codec_context if streams else None  # None: unknown, typed or not
    if context is None:
        container.close()
        raise _unreadable(
            path, "FFmpeg knows no decoder for the video" if streams else "it holds no video stream"
        )
    return container, streams[0]


def _unreadable(path: Path, reason: str) -> VideoError:
    missing = missing_bytes(path)
    if missing:
        reason = (
            f"cut short, {missing} bytes are missing and with them its index, so no frame can be"
            " read; copy the file again from its origin"
        )
    return VideoError(f"{path}: {reason}")
