"""Pictures stored in parquet rows (`dtype: image`): kept as the JPEG or PNG bytes they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from lake.video_images import images_video

from ingest.errors import EpisodeError
from lake.episode import CameraVideo
from lake.errors import VideoError

_MAGIC: Final[tuple[tuple[bytes, Literal["mjpeg", "png"]], ...]] = (
    (b"\xff\xd8\xff", "mjpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
)


def is_image_type(kind: pa.DataType) -> bool:
    """True for the struct with `bytes` and `path` that holds a picture."""
    return bool(pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)


def read_images(root: Path, key: str, column: pa.ChunkedArray) -> CameraVideo:
    """One picture per row as a camera; a row without a picture has no frame.

    Raises:
        EpisodeError: no picture at all, a picture of an unknown kind, or kinds mixed.
    """
    pictures: list[bytes] = []
    step_to_frame = np.full(len(column), -1, np.int32)
    for step, row in enumerate(column.to_pylist()):
        data = _bytes(root, row)
        if data:
            step_to_frame[step] = len(pictures)
            pictures.append(data)
    if not pictures:
        raise EpisodeError(f"{key}: no row holds a picture", reason="no-pictures", stream=key)
    codec = _codec(key, pictures)
    try:
        return images_video(pictures, codec=codec, step_to_frame=step_to_frame)
    except VideoError as error:
        raise EpisodeError(f"{key}: {error}", reason="bad-video", stream=key) from error


def _bytes(root: Path, row: dict[str, object] | None) -> bytes | None:
    """The bytes in the row, or those of the file that it names inside the dataset."""
    if row is None:
        return None
    data, name = row.get("bytes"), row.get("path")
    if isinstance(data, bytes) and data:
        return data
    if isinstance(name, str) and name:
        path = (root / name).resolve()
        if path.is_relative_to(root.resolve()) and path.is_file():
            return path.read_bytes()
    return None


def _codec(key: str, pictures: Sequence[bytes]) -> Literal["mjpeg", "png"]:
    kinds = {
        next((codec for magic, codec in _MAGIC if data.startswith(magic)), None)
        for data in pictures
    }
    if len(kinds) > 1 or None in kinds:
        names = sorted(kind or "unknown" for kind in kinds)
        raise EpisodeError(
            f"{key}: pictures are {' and '.join(names)}; all JPEG or all PNG is needed",
            reason="bad-pictures",
            stream=key,
        )
    return next(kind for kind in kinds if kind is not None)
