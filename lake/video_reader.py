"""Opening a video file and reading ranges of its packets."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from lake.errors import VideoError
from lake.video_container import missing_bytes
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
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    # Quoted, since PyAV's Packet is generic for type checkers only.
    def read(self, start: int, stop: int) -> "Iterator[Packet[VideoStream]]":
        """Packets of rows [start, stop), one at a time, each checked against the table.

        Ranges in ascending order are one pass over the file; others seek.

        Raises:
            VideoError: the file is not what it was when it was opened.
        """
        if _stamp(self.path) != self._stamp:
            raise self._changed(start)
        try:
            if not 0 <= self._next_row <= start <= self._next_row + _READ_ON:
                self._seek(start)
            for _ in range(start - self._next_row):
                next(self._packets)
            self._next_row = -1  # until the range is through
            for pts in self.table.pts[start:stop].tolist():
                packet = next(self._packets)
                if packet.pts != pts:
                    raise self._changed(start)
                yield packet
        except (av.error.FFmpegError, OSError, StopIteration) as error:
            raise self._changed(start) from error
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
        container = av.open(str(path))
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
