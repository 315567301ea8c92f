"""One episode: rows to features, step grid, cameras and labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.lerobot.columns import Column, read_column
from ingest.lerobot.episodes import EpisodeRecord
from ingest.lerobot.images import is_image_type, read_images
from ingest.lerobot.info import DatasetInfo
from ingest.source import Finding
from lake.episode import CameraVideo

_NS: Final = 1_000_000_000


@dataclass(kw_only=True)
class Rows:
    """The rows of an episode, split by kind, by dataset key."""

    columns: dict[str, Column]
    pictures: dict[str, CameraVideo]
    findings: list[Finding]

    def values(self) -> dict[str, NDArray[Any]]:
        """Values of the columns."""
        return {key: column.values for key, column in self.columns.items()}


def read_rows(root: Path, info: DatasetInfo, record: EpisodeRecord, table: pa.Table) -> Rows:
    """Turn a table of T rows into arrays and pictures; a column that cannot is a finding."""
    rows = Rows(columns={}, pictures={}, findings=[])
    for key in table.column_names:
        declared = info.features.get(key)
        is_camera = declared is not None and declared.is_camera
        try:
            if not is_image_type(table.schema.field(key).type):
                # A column called like a video camera holds references into its file, no data.
                if not is_camera:
                    rows.columns[key] = read_column(key, table[key])
            elif is_camera:
                rows.pictures[key] = read_images(root, key, table[key])
            else:
                raise _undeclared_camera(key)
        except EpisodeError as error:
            rows.findings.append(
                Finding(
                    severity="error",
                    reason=error.reason,
                    where=record.locator,
                    detail=f"{error}; the episode goes in without it",
                    episode=record.locator,
                    stream=key,
                )
            )
    rows.findings += _absent(info, record, table.column_names)
    return rows


def step_grid(
    record: EpisodeRecord, values: Mapping[str, NDArray[Any]], num_steps: int, fps: float | None
) -> tuple[NDArray[np.int64], list[Finding]]:
    """Step times in integer nanoseconds.

    A stored float t (seconds, float32 or double) becomes round(t * 1e9), computed in double; the
    stored value itself stays in the feature `timestamp`, bit for bit. Without stored times the
    grid is step / fps.

    Raises:
        EpisodeError: `no-time`: neither times nor a rate.
    """
    times = values.get("timestamp")
    if times is not None and times.ndim == 1 and times.dtype.kind in "fiu":
        seconds = times.astype(np.float64)
        if np.isfinite(seconds).all() and (np.abs(seconds) < np.iinfo(np.int64).max / _NS).all():
            return np.rint(seconds * _NS).astype(np.int64), []
    if fps is None:
        raise EpisodeError(
            f"{record.locator}: has no usable timestamps and info.json no fps; give --fps",
            reason="no-time",
            stream="timestamp",
        )
    finding = Finding(
        severity="info" if times is None else "warning",
        reason="no-timestamps" if times is None else "bad-timestamps",
        where=record.locator,
        detail=f"no usable timestamps in the rows; the grid is step / {fps:g}",
        episode=record.locator,
        stream="timestamp",
    )
    return np.rint(np.arange(num_steps) * _NS / fps).astype(np.int64), [finding]


def frame_index(values: Mapping[str, NDArray[Any]]) -> NDArray[np.int64] | None:
    """The `frame_index` column as int64 [T], or None."""
    column = values.get("frame_index")
    if column is None or column.ndim != 1 or column.dtype.kind not in "iu":
        return None
    return column.astype(np.int64)


def _undeclared_camera(key: str) -> EpisodeError:
    return EpisodeError(
        f"{key}: pictures in a column that info.json does not declare as a camera; declare it"
        " (dtype image) to keep them",
        reason="undeclared-camera",
        stream=key,
    )


def _absent(info: DatasetInfo, record: EpisodeRecord, names: Sequence[str]) -> list[Finding]:
    """Declared features that the rows do not have."""
    return [
        Finding(
            severity="warning",
            reason="feature-without-column",
            where=record.locator,
            detail="declared, but the rows have no such column; the episode goes in without it",
            episode=record.locator,
            stream=feature.key,
        )
        for feature in info.features.values()
        if feature.dtype != "video" and feature.key not in names
    ]
