"""One signal of an Example as rows of an array, or as pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.rlds.columns import Column
from ingest.rlds.features import Leaf
from ingest.rlds.language import text_array
from ingest.rlds.numbers import as_json, fold_rows, read_numbers
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_images import images_video, picture_codec

_MAX_REPEATED_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class MemoryRows:
    """An array in memory as `ingest.arrays` takes it."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its elements."""
        return self.array.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows [start, stop)."""
        return self.array[start:stop]


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What a column holds.

    Attributes:
        array: [T, *shape], None for compressed pictures.
        video: compressed pictures, as they were stored.
        notes: reason -> sentence, what a user should know.
    """

    array: NDArray[Any] | None = None
    video: CameraVideo | None = None
    notes: dict[str, str] = field(default_factory=dict)


def read_signal(column: Column, leaf: Leaf | None, num_steps: int) -> Signal:
    """Read a column; a fact of the whole episode is repeated for each step.

    Raises:
        EpisodeError: it cannot be kept.
    """
    if holds_pictures(column, leaf):
        return _pictures(column, num_steps)
    if column.row_lengths:
        return _ragged(column, leaf, num_steps)
    if column.is_per_step:
        return _rows(column, leaf, num_steps)
    if leaf and leaf.levels:
        leaf = replace(leaf, shape=(None,) * leaf.levels + leaf.shape)
    once = _rows(column, leaf, 1)
    assert once.array is not None
    if _num_bytes(once.array) * num_steps > _MAX_REPEATED_BYTES:
        raise EpisodeError(
            f"{_num_bytes(once.array)} bytes for the whole episode are too many to repeat them for"
            f" each of its {num_steps} steps",
            reason="episode-value-too-large",
            stream=column.name,
        )
    return replace(once, array=np.repeat(once.array, num_steps, axis=0))


def _num_bytes(array: NDArray[Any]) -> int:
    if array.dtype == object:
        return sum(len(text) for text in array.ravel())
    return array.nbytes


def holds_pictures(column: Column, leaf: Leaf | None) -> bool:
    """Whether a column is declared to hold pictures; undeclared, whether its first one is one."""
    if not isinstance(column.values, list):
        return False
    if leaf is not None:
        return leaf.kind == "image"
    first = next((value for value in column.values if value), b"")
    return picture_codec(bytes(first[:16])) is not None


def _rows(column: Column, leaf: Leaf | None, rows: int) -> Signal:
    if leaf.kind == "text" if leaf else isinstance(column.values, list):
        array, sound = text_array(column, leaf, rows)
        sentence = "bytes that are not UTF-8 are kept as \\x.."
        return Signal(array=array, notes={} if sound else {"not-utf8": sentence})
    array, sentence = read_numbers(column, leaf, rows)
    return Signal(array=array, notes={"type-differs": sentence} if sentence else {})


def _ragged(column: Column, leaf: Leaf | None, num_steps: int) -> Signal:
    """Rows of one length are an array; rows of several become JSON text."""
    if len(column.row_lengths[0]) != num_steps:
        raise EpisodeError(
            f"{len(column.row_lengths[0])} row lengths for {num_steps} steps",
            reason="wrong-count",
            stream=column.name,
        )
    parts = int(column.row_lengths[-1].sum())
    flat = Signal(array=np.empty(0))
    if parts:
        flat = _rows(replace(column, row_lengths=()), leaf, parts)
    assert flat.array is not None
    lengths = column.row_lengths[0]
    if parts and len(column.row_lengths) == 1 and (lengths == lengths[0]).all():
        return replace(flat, array=flat.array.reshape(num_steps, lengths[0], *flat.array.shape[1:]))
    rows = fold_rows(column, flat.array.tolist())
    sentence = "rows of varying length are kept as JSON text"
    return Signal(array=as_json(rows), notes=flat.notes | {"ragged": sentence})


def _pictures(column: Column, num_steps: int) -> Signal:
    assert isinstance(column.values, list)
    if column.row_lengths or not column.is_per_step:
        raise EpisodeError(
            "several pictures per step, or some for the whole episode, are no camera",
            reason="nested-pictures",
            stream=column.name,
        )
    if len(column.values) != num_steps:
        raise EpisodeError(
            f"{len(column.values)} pictures for {num_steps} steps; which of them belong to the"
            " steps is not known",
            reason="wrong-count",
            stream=column.name,
        )
    there = np.array([len(value) > 0 for value in column.values])
    if not there.any():
        raise EpisodeError("no step has a picture", reason="no-pictures", stream=column.name)
    frames = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
    images = [bytes(value) for value in column.values if value]
    try:
        video = images_video(images, step_to_frame=frames)
    except VideoError as error:
        raise EpisodeError(str(error), reason="bad-pictures", stream=column.name) from error
    return Signal(video=video, notes=_placeholder(images))


def _placeholder(images: Sequence[bytes]) -> dict[str, str]:
    if len(images) < 2 or len(set(images)) > 1:
        return {}
    return {"constant-pictures": "all pictures are the same: a placeholder, not a camera?"}
