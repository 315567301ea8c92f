"""Layout v3.0: many episodes per data and video file, listed in `meta/episodes/`."""

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.export.lerobot.mp4 import Clip, Mp4File
from ingest.export.lerobot.output import DatasetOutput, EpisodeOutput, write_common, write_json
from ingest.export.lerobot.rows import arrow_schema
from ingest.export.lerobot.schema import Column, Schema
from ingest.export.lerobot.timeline import MAX_FILE_S
from ingest.export.lerobot.vector_stats import QUANTILES, has_stats

_MB: Final = 1 << 20
_CHUNK: Final = 1000  # files per folder
_EPISODES_PER_GROUP: Final = 10
_DATA: Final = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO: Final = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_EPISODES: Final = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


class LayoutV3:
    """Writes layout v3.0.

    Args:
        root: folder of the dataset.
        schema: of the dataset.
        data_file_mb, video_file_mb: a file that would become larger is ended before.
    """

    def __init__(
        self, root: Path, schema: Schema, *, data_file_mb: int = 100, video_file_mb: int = 200
    ) -> None:
        self.data_schema = arrow_schema(schema, "List")
        self._root = root
        self._schema = schema
        self._sizes = {
            "data_files_size_in_mb": data_file_mb,
            "video_files_size_in_mb": video_file_mb,
        }
        self._data = _ParquetFiles(root, _DATA, self.data_schema, data_file_mb * _MB)
        episodes = _episodes_schema(schema)
        self._episodes = _ParquetFiles(root, _EPISODES, episodes, data_file_mb * _MB)
        self._rows: list[dict[str, Any]] = []
        self._videos = {
            camera.key: _VideoFiles(root, camera.key, schema.fps, video_file_mb * _MB)
            for camera in schema.videos
        }

    def add(self, episode: EpisodeOutput) -> None:
        """Write an episode; they come in order."""
        steps = episode.rows.num_rows
        row: dict[str, Any] = {
            "episode_index": episode.index,
            "tasks": episode.tasks,
            "length": steps,
            **_place("data", self._data.write(episode.rows)),
            "dataset_from_index": episode.first_row,
            "dataset_to_index": episode.first_row + steps,
        }
        for key, clip in episode.clips.items():
            number, first = self._videos[key].write(clip)
            row |= _place(f"videos/{key}", number)
            row[f"videos/{key}/from_timestamp"] = first / self._schema.fps
            row[f"videos/{key}/to_timestamp"] = (first + steps) / self._schema.fps
        for key, stats in episode.stats.items():
            row |= {f"stats/{key}/{name}": value for name, value in stats.items()}
        self._rows.append(row)
        if len(self._rows) == _EPISODES_PER_GROUP:
            self._write_rows()

    def finish(self, dataset: DatasetOutput) -> int:
        """Write what stands at the end; the number of data and video files."""
        self._write_rows()
        self._data.close()
        self._episodes.close()
        for videos in self._videos.values():
            videos.close()
        write_json(self._root / "meta" / "info.json", self._info(dataset))
        _write_tasks(self._root / "meta" / "tasks.parquet", dataset.tasks)
        write_common(self._root, dataset)
        return self._data.count + sum(videos.count for videos in self._videos.values())

    def abandon(self) -> None:
        """Close what is open."""
        self._data.close()
        self._episodes.close()
        for videos in self._videos.values():
            videos.abandon()

    def _write_rows(self) -> None:
        if not self._rows:
            return
        # The file must be known before its rows, which name it.
        size = pa.Table.from_pylist(self._rows, self._episodes.schema).nbytes
        place = _place("meta/episodes", self._episodes.number_for(size))
        rows = [{**row, **place} for row in self._rows]
        self._episodes.write(pa.Table.from_pylist(rows, self._episodes.schema))
        self._rows.clear()

    def _info(self, dataset: DatasetOutput) -> dict[str, Any]:
        return {
            "codebase_version": "v3.0",
            "fps": self._schema.fps_number,
            "features": self._schema.declared(),
            "total_episodes": dataset.episodes,
            "total_frames": dataset.steps,
            "total_tasks": len(dataset.tasks),
            "chunks_size": _CHUNK,
            **self._sizes,
            "data_path": _DATA,
            "video_path": _VIDEO if self._schema.videos else None,
            "robot_type": self._schema.robot_type,
            "splits": dict(dataset.splits),
        }


class _ParquetFiles:
    """Numbered parquet files of one schema, one row group per table written."""

    def __init__(self, root: Path, template: str, schema: pa.Schema, limit: int) -> None:
        self.schema = schema
        self.count = 0
        self._root, self._template, self._limit = root, template, limit
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def number_for(self, num_bytes: int) -> int:
        """Number of the file that so much more goes into; a full one is ended."""
        if self._sink is not None and self._sink.tell() + num_bytes >= self._limit:
            self.close()
        if self._sink is None:
            path = self._root / _numbered(self._template, self.count)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(path), "wb")
            self._writer = pq.ParquetWriter(self._sink, self.schema, compression="snappy")
            self.count += 1
        return self.count - 1

    def write(self, table: pa.Table) -> int:
        """Append a row group; returns the number of its file."""
        number = self.number_for(table.nbytes)
        assert self._writer is not None
        self._writer.write_table(table, row_group_size=table.num_rows)
        return number

    def close(self) -> None:
        """End the file at hand."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None


class _VideoFiles:
    """Numbered MP4 files of one camera."""

    def __init__(self, root: Path, key: str, fps: float, limit: int) -> None:
        self.count = 0
        self._root, self._fps, self._limit = root, fps, limit
        self._template = _VIDEO.replace("{video_key}", key.replace("{", "{{").replace("}", "}}"))
        self._file: Mp4File | None = None

    def write(self, clip: Clip) -> tuple[int, int]:
        """Copy a clip; returns the numbers of its file and of the frame of its step 0 there."""
        frames = len(clip.place.slots)
        if self._file is not None and not (
            self._file.takes(clip)
            and self._file.num_bytes + clip.video.index.num_bytes < self._limit
            and (self._file.num_frames + frames) / self._fps <= MAX_FILE_S
        ):
            self.close()
        if self._file is None:
            path = self._root / _numbered(self._template, self.count)
            self._file = Mp4File(path, self._fps, clip)
            self.count += 1
        return self.count - 1, self._file.append(clip)

    def close(self) -> None:
        """End the file at hand."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def abandon(self) -> None:
        """Close the file at hand, whatever it is like."""
        if self._file is not None:
            self._file.abandon()
        self._file = None


def _numbered(template: str, number: int) -> str:
    return template.format(chunk_index=number // _CHUNK, file_index=number % _CHUNK)


def _place(prefix: str, number: int) -> dict[str, int]:
    return {
        f"{prefix}/chunk_index": number // _CHUNK,
        f"{prefix}/file_index": number % _CHUNK,
    }


def _episodes_schema(schema: Schema) -> pa.Schema:
    """Columns of the episode list, in LeRobot's order."""
    whole, text = pa.int64(), pa.list_(pa.string())
    fields = [("episode_index", whole), ("tasks", text), ("length", whole)]
    fields += [(f"data/{name}", whole) for name in ("chunk_index", "file_index")]
    fields += [("dataset_from_index", whole), ("dataset_to_index", whole)]
    for camera in schema.videos:
        key = f"videos/{camera.key}"
        fields += [(f"{key}/chunk_index", whole), (f"{key}/file_index", whole)]
        fields += [(f"{key}/from_timestamp", pa.float64()), (f"{key}/to_timestamp", pa.float64())]
    for part in schema.parts():
        if isinstance(part, Column) and not has_stats(part):
            continue
        kind = pa.float64()
        for _ in range(max(1, len(part.shape)) if isinstance(part, Column) else 3):
            kind = pa.list_(kind)
        for name in ("min", "max", "mean", "std", "count", *QUANTILES):
            fields.append(
                (f"stats/{part.key}/{name}", pa.list_(whole) if name == "count" else kind)
            )
    fields += [(f"meta/episodes/{name}", whole) for name in ("chunk_index", "file_index")]
    return pa.schema(fields)


def _write_tasks(path: Path, tasks: tuple[str, ...]) -> None:
    """The task table as pandas writes it with the text as index, row i being task index i."""
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype}
        for name, kind, dtype in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [
            {
                "name": None,
                "field_name": None,
                "pandas_type": "unicode",
                "numpy_type": "object",
                "metadata": {"encoding": "UTF-8"},
            }
        ],
        "columns": [{**column, "metadata": None} for column in columns],
        "attributes": {},
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.3.3",
    }
    table = pa.table(
        {
            "task_index": pa.array(range(len(tasks)), pa.int64()),
            "task": pa.array(tasks, pa.string()),
        }
    )
    pq.write_table(
        table.replace_schema_metadata({b"pandas": json.dumps(pandas).encode()}),
        path,
        compression="snappy",
    )
