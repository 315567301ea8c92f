"""Pictures stored as arrays or as compressed bytes, turned into a camera.

Three ways are met: raw uint8 [T, H, W, 3], encoded once on the way in; JPEG or PNG bytes padded
with zeros to one length, uint8 [T, L] (ACT with `compress=True`); bytes of varying length, [T].
Compressed pictures are kept as they are. 16-bit depth [T, H, W] becomes 16-bit PNG, lossless.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.rows import Rows, count_rows
from ingest.depth_png import depth_pngs
from ingest.errors import EpisodeError
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_encode import encode_frames
from lake.video_images import images_video, picture_codec

Kind = Literal["raw", "padded", "bytes", "depth"]

_BLOCK: Final = 32


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """An array that holds pictures.

    Attributes:
        rows: the array.
        where: file and path, for errors.
        kind: how the pictures are stored.
        height, width: in pixels, 0 where only decoding tells.
    """

    rows: Rows
    where: str
    kind: Kind
    height: int = 0
    width: int = 0

    @property
    def is_depth(self) -> bool:
        """True for 16-bit depth."""
        return self.kind == "depth"


def as_pictures(rows: Rows, where: str) -> Pictures | None:
    """Describe an array that holds one picture per row, None where it does not."""
    shape, dtype = rows.shape, rows.dtype
    if shape is None:
        return None
    if len(shape) == 4 and dtype == np.uint8 and shape[3] == 3:
        return Pictures(rows=rows, where=where, kind="raw", height=shape[1], width=shape[2])
    if len(shape) == 3 and dtype == np.uint16:
        return Pictures(rows=rows, where=where, kind="depth", height=shape[1], width=shape[2])
    if not shape or shape[0] == 0:
        return None
    if len(shape) == 2 and dtype == np.uint8:
        return _if_magic(Pictures(rows=rows, where=where, kind="padded"))
    if len(shape) == 1 and dtype.kind in "OSV":
        return _if_magic(Pictures(rows=rows, where=where, kind="bytes"))
    return None


def read_camera(
    pictures: Pictures,
    step_to_frame: NDArray[np.int32],
    *,
    fps: float | None,
    images: Literal["h264", "png"],
) -> CameraVideo:
    """Read all pictures into a camera, holding one block of raw pictures at a time.

    Args:
        pictures: where they are.
        step_to_frame: int32 [T], picture of each step.
        fps: rate written into an encoded stream; it only labels its time base.
        images: how raw pictures are kept.

    Raises:
        EpisodeError: unreadable rows, a damaged picture, pictures of several kinds.
    """
    stream = pictures.where.rsplit("/", 1)[-1]
    try:
        if pictures.kind == "raw":
            return encode_frames(
                (frame for block in _blocks(pictures) for frame in block),
                fps=fps or 1.0,
                step_to_frame=step_to_frame,
                codec=images,
            )
        if pictures.kind == "depth":
            return images_video(depth_pngs(_depth(pictures)), step_to_frame=step_to_frame)
        compressed = [data for block in _blocks(pictures) for data in _unpadded(block)]
        return images_video(compressed, step_to_frame=step_to_frame)
    except VideoError as error:
        raise EpisodeError(
            f"{pictures.where}: {error}", reason="bad-pictures", stream=stream
        ) from error


def _blocks(pictures: Pictures) -> Iterator[Any]:
    count = count_rows(pictures.rows)
    for start in range(0, count, _BLOCK):
        yield pictures.rows.read(start, min(start + _BLOCK, count))


def _depth(pictures: Pictures) -> Iterator[NDArray[np.uint16]]:
    return (depth.astype(np.uint16) for block in _blocks(pictures) for depth in block)


def _unpadded(block: Any) -> Iterator[bytes]:  # noqa: ANN401  uint8 rows, bytes or vlen arrays
    """Compressed pictures without their padding.

    JPEG ends in FF D9 and PNG in its CRC-ended IEND chunk, whose last byte is 0x82: neither ends in
    a zero, so the zeros at the end are padding, whatever `compress_len` says.
    """
    for row in block:
        data = row if isinstance(row, bytes) else np.asarray(row).tobytes()
        yield data.rstrip(b"\0")


def _if_magic(pictures: Pictures) -> Pictures | None:
    first = next(_unpadded(pictures.rows.read(0, 1)))
    return pictures if picture_codec(first) else None
