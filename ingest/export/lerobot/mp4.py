"""One MP4 file that packets of many episodes are copied into, a frame every 1 / fps."""

import io
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import av

from ingest.export.errors import ExportError
from ingest.export.lerobot.bitstream import CodecHeader, codec_header, mp4_packet
from ingest.export.lerobot.timeline import Placement
from lake.episode import CameraVideo
from lake.video_file import VideoFile

_MAX_DENOMINATOR: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Clip:
    """An episode's video of one camera, ready to be copied."""

    video: CameraVideo
    place: Placement
    header: CodecHeader

    @classmethod
    def of(cls, video: CameraVideo, place: Placement) -> "Clip":
        """The clip of a camera.

        Raises:
            VideoError: its first packet has no codec header.
        """
        size = int(video.index.packet_size[0])
        header = codec_header(video.index, bytes(memoryview(video.payload)[:size]))
        return cls(video=video, place=place, header=header)


class Mp4File:
    """An MP4 file being written.

    Attributes:
        path: where.
        num_frames: frames so far.
        num_bytes: bytes of packets so far.
    """

    def __init__(self, path: Path, fps: float, first: Clip) -> None:
        """Begin a file for clips like `first`, which is not yet written."""
        self.path = path
        # Pictures that nobody can decode from here get times before 0, where players leave them.
        self.num_frames = 0 if first.header.is_fresh else -first.place.leading
        self.num_bytes = 0
        self._delay = first.place.delay
        self._header = first.header
        self._size = first.video.index.width, first.video.index.height
        self._period = 1 / Fraction(fps).limit_denominator(_MAX_DENOMINATOR)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._seed = av.open(io.BytesIO(first.header.seed))
        self._container = av.open(str(path), "w", options={"movflags": "faststart"})
        self._stream = self._container.add_stream_from_template(
            self._seed.streams.video[0], opaque=True
        )
        self._stream.time_base = self._period

    def takes(self, clip: Clip) -> bool:
        """Whether a decoder that comes from the clips before shows this one as it should."""
        index = clip.video.index
        return (
            clip.header.is_fresh
            and clip.header.codec == self._header.codec
            and clip.header.extradata == self._header.extradata
            and (index.width, index.height) == self._size
            and clip.place.delay <= self._delay
        )

    def append(self, clip: Clip) -> int:
        """Copy a clip's packets; returns the number of the frame of its step 0.

        Raises:
            VideoError: a packet is not what its codec says.
        """
        index, place = clip.video.index, clip.place
        payload = memoryview(clip.video.payload)
        offsets = index.packet_offsets().tolist()
        keys = index.packet_key.tolist()
        for number, slot in enumerate(place.slots.tolist()):
            data = payload[offsets[number] : offsets[number + 1]]
            packet = av.Packet(mp4_packet(self._header, data))
            packet.stream = self._stream
            packet.time_base = self._period
            packet.pts = self.num_frames + slot
            packet.dts = self.num_frames + number - self._delay
            packet.duration = 1
            packet.is_keyframe = keys[number]
            self._container.mux(packet)
        first = self.num_frames + place.first
        self.num_frames += len(keys)
        self.num_bytes += index.num_bytes
        return first

    def close(self) -> None:
        """Finish the file, and demux it once to see that every frame is where it should be.

        Raises:
            ExportError: it is not.
        """
        self._container.close()
        self._seed.close()
        with VideoFile(self.path) as file:
            pts = file.frame_pts
            if len(pts) != self.num_frames:
                raise ExportError(
                    f"{self.path.name}: {self.num_frames} packets were copied, {len(pts)} frames"
                    " are found in the file"
                )
            off = [
                number
                for number, ticks in enumerate(pts.tolist())
                if ticks * file.time_base != number * self._period
            ]
            if off:
                raise ExportError(
                    f"{self.path.name}: frame {off[0]} is shown at"
                    f" {float(pts[off[0]] * file.time_base):.6f} s, not at"
                    f" {float(off[0] * self._period):.6f} s"
                )

    def abandon(self) -> None:
        """Close what is open, whatever the file is like then."""
        self._container.close()
        self._seed.close()
