"""The packets of a video stream, and which frame each one shows, found without decoding.

Frame numbers are those of a plain decode of the file: 0 is the first frame such a decode puts out.
They follow pts, so what a decode drops must be left out here too: packets that an edit list
discards, alternate reference frames, and leading pictures before the first key frame.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from lake.errors import VideoError
from lake.video_nal import is_clean_start, length_size

_SHOWN_VP8 = 0x10  # RFC 6386 9.1: show_frame in the first byte
_AVI_UNORDERED = frozenset({"h264", "hevc"})


@dataclass(frozen=True, kw_only=True)
class PacketTable:
    """One row per packet, in decode order.

    Attributes:
        pts, dts: int64 [P], in ticks of the stream's time base; dts equals pts where absent.
        clean: bool [P], True where decoding can start (see `lake.video_nal`); always at row 0.
        frame: int64 [P], number of the frame that the packet shows, -1 for none.
        shown: int64 [F], row of the packet that holds each frame, in display order.
        size: int64 [P], bytes of each packet as the demuxer gives it.
        position: int64 [P], its byte position in the file, -1 where the container has none.
        in_place: whether positions lead to the packets' own bytes, as far as the first one tells.
        error: why demuxing ended early, "" where it did not.
    """

    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    clean: NDArray[np.bool_]
    frame: NDArray[np.int64]
    shown: NDArray[np.int64]
    size: NDArray[np.int64]
    position: NDArray[np.int64]
    in_place: bool
    error: str

    def start_row(self, rows: NDArray[np.int64]) -> int:
        """The last clean row from which every frame of `rows` decodes right.

        That is a start that is neither decoded nor displayed after any of them: where a frame is
        displayed before the key frame that precedes it (open GOP), the start is one key earlier.
        """
        first_pts = self.pts[rows].min()
        at = int(np.searchsorted(self._clean_rows, rows.min(), side="right")) - 1
        while at > 0 and self.pts[self._clean_rows[at]] > first_pts:
            at -= 1
        return int(self._clean_rows[at])

    @cached_property
    def _clean_rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.clean)

    def certain_prefix(self) -> "PacketTable":
        """The frames before the first that may be lost where the file was cut short.

        A packet that was lost would have followed in decode order, so it is shown at or after the
        dts of the last one read; with B-frames, later frames may stand beside gaps.
        """
        last = self.dts[-1] if len(self.dts) else 0
        return replace(self, shown=self.shown[self.pts[self.shown] <= last])


def read_table(path: Path, container: InputContainer, stream: VideoStream) -> PacketTable:
    """Demux the stream once from where the container stands (its beginning).

    Raises:
        VideoError: packets without pts, with equal pts, or empty ones: such a file has no
            unambiguous frame numbers.
    """
    codec = stream.codec.canonical_name
    if (
        container.format.name == "avi"
        and codec in _AVI_UNORDERED
        and stream.codec_context.has_b_frames
    ):
        raise VideoError(
            f"{path}: AVI does not store the display order of {codec} with B-frames; re-encode the"
            " file (ffmpeg -i IN OUT.mp4)"
        )
    prefix = length_size(codec, stream.codec_context.extradata or b"")
    pts: list[int] = []
    dts: list[int] = []
    clean: list[bool] = []
    hidden: list[bool] = []
    size: list[int] = []
    position: list[int] = []
    in_place = True
    error = ""
    try:
        for packet in container.demux(stream):
            if packet.size == 0 and packet.dts is None:
                break  # the flush packet that ends every demux
            if packet.is_corrupt:
                error = f"packet {len(pts)} is incomplete"
                break
            at = packet.pts
            if at is None or packet.size == 0:
                what = "no pts" if at is None else "no bytes"
                raise VideoError(
                    f"{path}: packet {len(pts)} has {what}, so its frames cannot be numbered;"
                    " rewrite the file (ffmpeg -fflags +genpts -i IN -c copy OUT.mp4) or re-encode"
                )
            if not pts:
                in_place = _lies_at(path, packet.pos, memoryview(packet))
            pts.append(at)
            size.append(packet.size)
            position.append(-1 if packet.pos is None else packet.pos)
            dts.append(at if packet.dts is None else packet.dts)
            key = packet.is_keyframe
            if key and packet.has_sidedata("new_extradata"):  # a second sample description
                in_place = False
            clean.append(key and is_clean_start(codec, memoryview(packet), prefix))
            hidden.append(
                packet.is_discard or (codec == "vp8" and not memoryview(packet)[0] & _SHOWN_VP8)
            )
    except av.error.FFmpegError as reason:
        error = str(reason.strerror or reason)
    starts, stamps = np.array(clean, np.bool_), np.array(pts, np.int64)
    rows = _shown(path, stamps, starts, ~np.array(hidden, np.bool_))
    starts[:1] = True  # nothing comes before: a whole decode starts here as well
    frame = np.full(len(pts), -1, np.int64)
    frame[rows] = np.arange(len(rows))
    return PacketTable(
        pts=stamps,
        dts=np.array(dts, np.int64),
        clean=starts,
        frame=frame,
        shown=rows,
        size=np.array(size, np.int64),
        position=np.array(position, np.int64),
        in_place=in_place and min(position, default=-1) >= 0,
        error=error,
    )


def _lies_at(path: Path, position: int | None, packet: memoryview) -> bool:
    if position is None or position < 0:
        return False
    with path.open("rb") as file:
        file.seek(position)
        return file.read(len(packet)) == packet


def _shown(
    path: Path, pts: NDArray[np.int64], clean: NDArray[np.bool_], shown: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """int64 [F]: rows of the packets that a plain decode shows, in display order.

    Args:
        path: the file.
        pts: int64 [P].
        clean: bool [P].
        shown: bool [P], False for packets known to be hidden; changed here.
    """
    order = np.argsort(pts, kind="stable")
    twins = np.flatnonzero(np.diff(pts[order]) == 0)
    if len(twins):
        first, second = np.sort(order[twins[0] : twins[0] + 2])
        raise VideoError(
            f"{path}: packets {first} and {second} share pts {pts[first]}, so the frame shown then"
            " is ambiguous; re-encode the file with distinct timestamps"
        )
    # What a decode drops at the beginning depends on the decoder: only there, ask it.
    first_pts = pts[clean.argmax()] if clean.any() else pts.max(initial=0) + 1
    doubtful = np.flatnonzero(shown & (pts < first_pts))
    if len(doubtful):
        shown[doubtful] = np.isin(pts[doubtful], _emitted_before(path, int(first_pts)))
    return order[shown[order]]


def _emitted_before(path: Path, pts: int) -> list[int]:
    """The pts of the frames that a plain decode shows before `pts`."""
    emitted: list[int] = []
    try:
        with av.open(str(path), metadata_errors="replace") as container:
            for frame in container.decode(video=0):
                if frame.pts is None or frame.pts >= pts:
                    break
                emitted.append(frame.pts)
    except av.error.FFmpegError as error:
        raise VideoError(
            f"{path}: the frames before its first clean key frame cannot be decoded ({error})"
        ) from error
    return emitted
