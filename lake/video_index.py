"""Where every packet of a camera lies, and which frame each step shows.

A frame is named by its *display ordinal*: 0 is the first frame shown inside the episode, and the
packets that must be decoded before it (preroll) have negative ordinals. Ordinals come from pts,
never from the order in which a decoder emits pictures: with open GOPs a decoder drops leading
pictures after a seek and positions shift.

On disk an index is `HRVI`, a version byte, the length of a JSON header, the header, then the
arrays in the order of `_ARRAYS`, little endian.
"""

import json
import struct
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lake.errors import CorruptDataError, LakeVersionError, SpecError

_MAGIC = b"HRVI"
_VERSION = 1
_ARRAYS: tuple[tuple[str, str], ...] = (
    ("packet_size", "<i4"),
    ("packet_frame", "<i4"),
    ("packet_pts", "<i8"),
    ("packet_checksum", "<u8"),
    ("packet_key", "|b1"),
    ("step_to_frame", "<i4"),
)


@dataclass(frozen=True, kw_only=True)
class VideoIndex:
    """Index of one camera's packets, P packets for F shown frames and T steps.

    Attributes:
        codec: FFmpeg name of the stream's codec (`h264`, `hevc`, `av1`, `mjpeg`, `png`, ...).
        width, height: coded picture size in pixels, before rotation.
        pix_fmt: FFmpeg pixel format of the decoded frames.
        time_base: seconds per pts tick as (numerator, denominator).
        extradata: out-of-band codec headers, empty where the packets carry their own.
        color_range, color_space, color_primaries, color_transfer: FFmpeg's integer codes; 2 (or
            0 for the range) means unspecified.
        rotation_deg: display rotation stated by the container; never applied.
        quality: how pictures were encoded where Headrace encoded them, "" for a stream copy.
        packet_size: int32 [P], bytes; packets follow each other without gaps.
        packet_frame: int32 [P], display ordinal of the packet's frame; negative for preroll.
            Packets stand in decode order, so with B-frames this is not monotone.
        packet_pts: int64 [P], the source's pts, in ticks of time_base.
        packet_checksum: uint64 [P], XXH3-64 of the packet.
        packet_key: bool [P], True where decoding can start.
        step_to_frame: int32 [T], display ordinal shown at each step, -1 where there is none.
    """

    codec: str
    width: int
    height: int
    pix_fmt: str
    time_base: tuple[int, int]
    packet_size: NDArray[np.int32]
    packet_frame: NDArray[np.int32]
    packet_pts: NDArray[np.int64]
    packet_checksum: NDArray[np.uint64]
    packet_key: NDArray[np.bool_]
    step_to_frame: NDArray[np.int32]
    extradata: bytes = b""
    color_range: int = 0
    color_space: int = 2
    color_primaries: int = 2
    color_transfer: int = 2
    rotation_deg: int = 0
    quality: str = ""

    def __post_init__(self) -> None:
        packets = self.packet_size.shape
        for name, dtype in _ARRAYS:
            array: NDArray[Any] = getattr(self, name)
            if array.dtype != np.dtype(dtype) or array.ndim != 1:
                raise SpecError(f"video index: {name} must be 1-D {dtype}, is {array.dtype}")
            if name != "step_to_frame" and array.shape != packets:
                raise SpecError(f"video index: {name} has {array.shape}, expected {packets}")
        if packets[0] == 0 or not self.packet_key[0]:
            raise SpecError("video index: the first packet must be a key frame")
        shown = self.step_to_frame[self.step_to_frame >= 0]
        if shown.size and not np.isin(shown, self.packet_frame).all():
            raise SpecError("video index: a step shows a frame that no packet holds")

    @property
    def num_bytes(self) -> int:
        """Total bytes of all packets."""
        return int(self.packet_size.sum(dtype=np.int64))

    @property
    def num_frames(self) -> int:
        """Number of frames shown inside the episode, preroll left out."""
        return int((self.packet_frame >= 0).sum())

    def packet_offsets(self) -> NDArray[np.int64]:
        """int64 [P+1]: byte offset of each packet in the camera's payload, and the end."""
        offsets = np.zeros(len(self.packet_size) + 1, np.int64)
        np.cumsum(self.packet_size, out=offsets[1:])
        return offsets

    def to_bytes(self) -> bytes:
        """Serialise (format above)."""
        names = {name for name, _ in _ARRAYS}
        header: dict[str, Any] = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in names
        }
        header["extradata"] = self.extradata.hex()
        header["packets"] = len(self.packet_size)
        header["steps"] = len(self.step_to_frame)
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        arrays = [np.ascontiguousarray(getattr(self, n)).astype(d).tobytes() for n, d in _ARRAYS]
        return b"".join([_MAGIC, struct.pack("<BI", _VERSION, len(text)), text, *arrays])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Parse what `to_bytes` wrote.

        Raises:
            CorruptDataError: the bytes are not an index, or are cut short.
            LakeVersionError: a newer layout.
        """
        view = memoryview(data)
        if len(view) < 9 or view[:4] != _MAGIC:
            raise CorruptDataError("video index: bad magic")
        version, length = struct.unpack_from("<BI", view, 4)
        if version != _VERSION:
            raise LakeVersionError(
                f"video index layout {version}, this Headrace reads {_VERSION}: upgrade Headrace"
            )
        try:
            header: dict[str, Any] = json.loads(bytes(view[9 : 9 + length]))
            packets, steps = header.pop("packets"), header.pop("steps")
            header["extradata"] = bytes.fromhex(header["extradata"])
            header["time_base"] = tuple(header["time_base"])
            at = 9 + length
            for name, dtype in _ARRAYS:
                count = steps if name == "step_to_frame" else packets
                header[name] = np.frombuffer(view, np.dtype(dtype), count, at)
                at += count * np.dtype(dtype).itemsize
            if at != len(view):
                raise CorruptDataError(f"video index: {len(view) - at} bytes after its end")
            return cls(**header)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"video index: cannot be parsed ({error})") from error
