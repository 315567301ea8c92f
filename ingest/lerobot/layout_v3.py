"""Layout v3.0: many episodes per parquet and video file, listed in `meta/episodes/*/*.parquet`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ingest.errors import SourceError
from ingest.lerobot.episodes import EpisodeRecord, VideoPlace
from ingest.lerobot.info import DatasetInfo
from ingest.lerobot.parquet_errors import PARQUET_ERRORS
from ingest.source import Finding


def list_episodes_v3(root: Path, info: DatasetInfo) -> tuple[list[EpisodeRecord], list[Finding]]:
    """Episodes of all files under `meta/episodes`, whatever the order of their rows.

    A file that cannot be read costs the episodes it lists, and is a finding.

    Raises:
        SourceError: there is no such file, or none can be read.
    """
    folder = root / "meta" / "episodes"
    files = sorted(folder.glob("**/*.parquet"))
    if not files:
        raise SourceError(f"{folder}: no episode list (*.parquet)", reason="missing-file")
    records: list[EpisodeRecord] = []
    findings: list[Finding] = []
    for path in files:
        where = str(path.relative_to(root))
        try:
            rows = _read_rows(path)
        except PARQUET_ERRORS as error:
            findings.append(
                Finding(
                    severity="error",
                    reason="unreadable-file",
                    where=where,
                    detail=f"{error}; the episodes listed in it are lost",
                )
            )
            continue
        for row in rows:
            record = _record(row, info)
            if record is None:
                findings.append(
                    Finding(
                        severity="error",
                        reason="bad-episode-list",
                        where=where,
                        detail=f"episode_index is {row.get('episode_index')!r}; row not used",
                    )
                )
            else:
                records.append(record)
    if not records:
        detail = "; ".join(f.detail for f in findings) or "no rows"
        raise SourceError(f"{folder}: no episode can be listed ({detail})", reason="empty-file")
    return records, findings


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows without the `stats/` columns, which are wide and repeat what the data says."""
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("stats/")]
        rows: list[dict[str, Any]] = file.read(columns=names).to_pylist()
    return rows


def _record(row: Mapping[str, Any], info: DatasetInfo) -> EpisodeRecord | None:
    index = _whole(row.get("episode_index"))
    if index is None:
        return None
    first, stop = _whole(row.get("dataset_from_index")), _whole(row.get("dataset_to_index"))
    row_range = None
    if first is not None and stop is not None and first <= stop:
        row_range = (first, stop)
    length = _whole(row.get("length"))
    if length is None and row_range is not None:
        length = row_range[1] - row_range[0]
    tasks = row.get("tasks")
    return EpisodeRecord(
        index=index,
        length=length,
        tasks=tuple(str(task) for task in tasks) if isinstance(tasks, list) else (),
        data_file=info.data_path.format(
            chunk_index=_whole(row.get("data/chunk_index")) or 0,
            file_index=_whole(row.get("data/file_index")) or 0,
        ),
        row_range=row_range,
        videos={
            camera.key: place
            for camera in info.cameras
            if camera.dtype == "video" and (place := _place(row, camera.key, info)) is not None
        },
    )


def _place(row: Mapping[str, Any], key: str, info: DatasetInfo) -> VideoPlace | None:
    """The camera's file and start, each camera by its own columns; None where there are none."""
    chunk = _whole(row.get(f"videos/{key}/chunk_index"))
    file = _whole(row.get(f"videos/{key}/file_index"))
    start, end = row.get(f"videos/{key}/from_timestamp"), row.get(f"videos/{key}/to_timestamp")
    if chunk is None or file is None:
        return None
    if not isinstance(start, (int, float)) or not math.isfinite(start):
        return None
    return VideoPlace(
        file=info.video_path.format(video_key=key, chunk_index=chunk, file_index=file),
        from_s=float(start),
        to_s=float(end) if isinstance(end, (int, float)) else None,
    )


def _whole(value: object) -> int | None:
    """A count that is not negative, also where the tool that wrote the list made it a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None
