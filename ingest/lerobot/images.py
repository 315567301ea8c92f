"""Pictures stored in parquet rows (`dtype: image`): kept as the JPEG or PNG bytes they are."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from ingest.errors import EpisodeError
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_images import images_video


def is_image_type(kind: pa.DataType) -> bool:
    """True for the struct with `bytes` and `path` that holds a picture."""
    return bool(pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)


def read_images(root: Path, key: str, column: pa.ChunkedArray) -> CameraVideo:
    """One picture per row as a camera; a row without a picture has no frame.

    Raises:
        EpisodeError: no picture at all, one that is damaged or of an unknown kind, or kinds mixed.
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
    try:
        return images_video(pictures, step_to_frame=step_to_frame)
    except VideoError as error:
        raise EpisodeError(f"{key}: {error}", reason="bad-pictures", stream=key) from error


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
