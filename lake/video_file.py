"""Cutting a recorded video into episodes without decoding it."""

from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import av
import numpy as np
from numpy.typing import NDArray

from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_bitstream import needs_extradata
from lake.video_container import may_be_rotated, missing_bytes
from lake.video_index import VideoIndex
from lake.video_reader import PacketReader
from lake.video_runs import packet_checksums


class VideoFile:
    """One video file, demuxed once to learn its frames; holds the packet table, never the packets.

    Frames are numbered in display order as a plain decode of the file shows them, 0 first. Cuts in
    ascending order read the file once from front to back; others seek.

    Attributes:
        path: the file.
        codec: FFmpeg name of the codec (`h264`, `hevc`, `av1`, `mpeg4`, `vp9`, `mjpeg`, ...).
        width, height: picture size in pixels, before rotation.
        pix_fmt: FFmpeg pixel format of the decoded frames.
        time_base: seconds per pts tick.
        fps: average rate the container states, or None.
        rotation_deg: display rotation the container states; never applied.
        num_frames: frames that can be read.
        damage: what is wrong with the file, "" where it is whole.
    """

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        """Open and demux `path`.

        Args:
            path: the file.
            salvage: accept a file that was cut short, with the frames before the cut; `damage`
                then says what was lost.

        Raises:
            VideoError: not a video, no frame, ambiguous timestamps, or (without `salvage`) cut
                short; the message names the path and the number of readable frames.
        """
        self.path = Path(path)
        self._reader = PacketReader(self.path)
        stream, self._table = self._reader.stream, self._reader.table
        context = stream.codec_context
        self.codec: str = stream.codec.canonical_name
        self.width: int = context.width
        self.height: int = context.height
        self.pix_fmt: str = context.pix_fmt or ""
        self.time_base: Fraction = stream.time_base or Fraction(1)
        self.fps: Fraction | None = stream.average_rate or stream.guessed_rate
        self.rotation_deg: int = 0
        missing = missing_bytes(self.path)
        reason = f"{missing} bytes are missing at its end" if missing else self._table.error
        self.damage: str = f"cut short: {reason}" if reason else ""
        if self.damage:
            self._table = self._table.certain_prefix()
        self.num_frames: int = len(self._table.shown)
        try:
            self._refuse_damage(declared_frames=stream.frames, salvage=salvage)
            if not self.pix_fmt or may_be_rotated(self.path):
                self._learn_from_first_frame()
        except VideoError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; cuts already made stay valid."""
        self._reader.close()

    @property
    def frame_pts(self) -> NDArray[np.int64]:
        """int64 [num_frames], ascending: pts of every frame in ticks of `time_base`."""
        return self._table.pts[self._table.shown]

    def cut(
        self, first_frame: int, num_frames: int, step_to_frame: NDArray[np.int32]
    ) -> CameraVideo:
        """Copy the packets of frames [first_frame, first_frame + num_frames).

        Args:
            first_frame: number of the first frame.
            num_frames: how many, at least 1.
            step_to_frame: int32 [T], the frame each step shows counted from `first_frame`, -1 for
                none.

        Returns:
            The packets, unchanged in content, in decode order from the last place where decoding
            can start: H.264 and H.265 as Annex-B, AV1 as temporal units, others with the stream's
            extradata in the index. Packets of frames outside the cut have negative ordinals.

        Raises:
            VideoError: the range is not inside the file, or the file changed since it was opened.
        """
        if num_frames < 1 or first_frame < 0 or first_frame + num_frames > self.num_frames:
            raise VideoError(
                f"{self.path}: frames {first_frame}..{first_frame + num_frames - 1} asked for, but"
                f" the file has {self.num_frames} readable frames"
                + (f" ({self.damage})" if self.damage else "")
            )
        rows = self._table.shown[first_frame : first_frame + num_frames]
        start, stop = self._table.start_row(rows), int(rows.max()) + 1
        clean = self._table.clean[start:stop]
        payload, sizes = self._reader.read(start, stop)
        context = self._reader.stream.codec_context
        index = VideoIndex(
            codec=self.codec,
            width=self.width,
            height=self.height,
            pix_fmt=self.pix_fmt,
            time_base=(self.time_base.numerator, self.time_base.denominator),
            packet_size=sizes,
            packet_frame=_ordinals(self._table.frame[start:stop], first_frame, num_frames),
            packet_pts=self._table.pts[start:stop],
            packet_checksum=packet_checksums(payload, sizes),
            packet_key=clean,
            step_to_frame=step_to_frame,
            extradata=(context.extradata or b"") if needs_extradata(self.codec) else b"",
            color_range=int(context.color_range),
            color_space=int(context.colorspace),
            color_primaries=int(context.color_primaries),
            color_transfer=int(context.color_trc),
            rotation_deg=self.rotation_deg,
        )
        return CameraVideo(index=index, payload=payload.toreadonly())

    def _refuse_damage(self, *, declared_frames: int, salvage: bool) -> None:
        if self.num_frames == 0:
            raise VideoError(f"{self.path}: no readable frame ({self.damage or 'none is stored'})")
        if self.damage and not salvage:
            of = f" of {declared_frames}" if declared_frames > self.num_frames else ""
            raise VideoError(
                f"{self.path}: {self.damage}; {self.num_frames}{of} frames are readable. Copy the"
                " file again from its origin, or accept its readable part"
            )

    def _learn_from_first_frame(self) -> None:
        try:
            with av.open(str(self.path), metadata_errors="replace") as container:
                frame = next(container.decode(video=0), None)
        except av.error.FFmpegError as error:
            raise VideoError(f"{self.path}: the first frame cannot be decoded ({error})") from error
        if frame is None:
            raise VideoError(f"{self.path}: the first frame cannot be decoded")
        self.rotation_deg, self.pix_fmt = frame.rotation, frame.format.name


def _ordinals(frame: NDArray[np.int64], first_frame: int, num_frames: int) -> NDArray[np.int32]:
    """Display ordinals of the packets of a cut, counted from `first_frame`.

    Frames before the cut keep their negative distance; what is decoded inside the cut but shown
    after it, or never, gets the numbers below those, since only frames of the cut count from 0.

    Args:
        frame: int64 [P], the frame of the file that each packet shows, -1 for none.
        first_frame: first frame of the cut.
        num_frames: frames of the cut.
    """
    ordinals = frame - first_frame
    outside = (frame < 0) | (ordinals >= num_frames)
    lowest = min(0, int(ordinals[~outside].min()))
    ordinals[outside] = lowest - 1 - np.arange(int(outside.sum()))
    return ordinals.astype(np.int32)
