"""Layout v2.1: a data file, and a video file per camera, for each episode."""

import json
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow.parquet as pq

from ingest.export.lerobot.mp4 import Mp4File
from ingest.export.lerobot.output import DatasetOutput, EpisodeOutput, write_common, write_json
from ingest.export.lerobot.rows import arrow_schema
from ingest.export.lerobot.schema import Schema
from ingest.export.lerobot.vector_stats import QUANTILES

_CHUNK: Final = 1000  # episodes per folder
_DATA: Final = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_VIDEO: Final = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"


class LayoutV21:
    """Writes layout v2.1.

    Args:
        root: folder of the dataset.
        schema: of the dataset.
    """

    def __init__(self, root: Path, schema: Schema) -> None:
        # The `datasets` library of its day does not know `List`.
        self.data_schema = arrow_schema(schema, "Sequence")
        self._root = root
        self._schema = schema
        self._video: Mp4File | None = None
        self._files = 0
        meta = root / "meta"
        meta.mkdir(parents=True)
        self._episodes = (meta / "episodes.jsonl").open("w", encoding="utf-8")
        self._stats = (meta / "episodes_stats.jsonl").open("w", encoding="utf-8")

    def add(self, episode: EpisodeOutput) -> None:
        """Write an episode; they come in order."""
        place = {"episode_chunk": episode.index // _CHUNK, "episode_index": episode.index}
        path = self._root / _DATA.format(**place)
        path.parent.mkdir(parents=True, exist_ok=True)
        steps = episode.rows.num_rows
        pq.write_table(episode.rows, path, compression="snappy", row_group_size=steps)
        for key, clip in episode.clips.items():
            video = self._root / _VIDEO.format(video_key=key, **place)
            self._video = Mp4File(video, self._schema.fps, clip)
            self._video.append(clip)
            self._video.close()
            self._video = None
        self._files += 1 + len(episode.clips)
        _write_line(
            self._episodes,
            {"episode_index": episode.index, "tasks": episode.tasks, "length": steps},
        )
        stats = {
            key: {name: value for name, value in of.items() if name not in QUANTILES}
            for key, of in episode.stats.items()
        }
        _write_line(self._stats, {"episode_index": episode.index, "stats": stats})

    def finish(self, dataset: DatasetOutput) -> int:
        """Write what stands at the end; the number of data and video files."""
        self.abandon()
        with (self._root / "meta" / "tasks.jsonl").open("w", encoding="utf-8") as file:
            for number, text in enumerate(dataset.tasks):
                _write_line(file, {"task_index": number, "task": text})
        write_json(self._root / "meta" / "info.json", self._info(dataset))
        write_common(self._root, dataset)
        return self._files

    def abandon(self) -> None:
        """Close what is open."""
        if self._video is not None:
            self._video.abandon()
        self._episodes.close()
        self._stats.close()

    def _info(self, dataset: DatasetOutput) -> dict[str, Any]:
        videos = self._schema.videos
        return {
            "codebase_version": "v2.1",
            "robot_type": self._schema.robot_type,
            "total_episodes": dataset.episodes,
            "total_frames": dataset.steps,
            "total_tasks": len(dataset.tasks),
            "total_videos": dataset.episodes * len(videos),
            "total_chunks": -(-dataset.episodes // _CHUNK),
            "chunks_size": _CHUNK,
            "fps": self._schema.fps_number,
            "splits": dict(dataset.splits),
            "data_path": _DATA,
            "video_path": _VIDEO if videos else None,
            "features": self._schema.declared(),
        }


def _write_line(file: TextIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")
