"""A LeRobot v3.0 dataset on disk for benches, written with pyarrow and PyAV alone.

Episodes differ in length and share one file per camera, as LeRobot's recorder writes them; its own
library reads the dataset too. What the cameras show is in `looped_video`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tools.bench.looped_video import Recorder, VideoShape, write_looped

_TASK_INDEX: Final = {
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
    "columns": [
        {
            "name": name,
            "field_name": name,
            "pandas_type": pandas_type,
            "numpy_type": numpy_type,
            "metadata": None,
        }
        for name, pandas_type, numpy_type in (
            ("task_index", "int64", "int64"),
            ("task", "unicode", "object"),
        )
    ],
    "pandas_version": "2.2.0",
}


@dataclass(frozen=True, kw_only=True)
class DatasetShape:
    """Size of the dataset.

    Attributes:
        episodes: number of episodes; lengths are lognormal around `mean_steps`.
        mean_steps: mean episode length in steps.
        cameras: camera names.
        height, width: picture size in pixels.
        gop: key-frame distance in frames.
        codec: PyAV encoder, `libx264` or `libsvtav1`.
        recorder: what is filmed and how it is encoded, see `VideoShape`.
        fps: steps per second.
        dims: length of the state and action vectors.
        seed: seed of lengths, signals and pictures.
    """

    episodes: int
    mean_steps: int = 225
    cameras: tuple[str, ...] = ("top", "wrist")
    height: int = 240
    width: int = 320
    gop: int = 2
    codec: str = "libx264"
    recorder: Recorder = "fast"
    fps: int = 30
    dims: int = 14
    seed: int = 0

    def lengths(self) -> NDArray[np.int64]:
        """int64 [episodes]: steps per episode, between 50 and 600.

        The last one fills up its group of pictures, so that no picture in the file refers to one
        that is not.
        """
        rng = np.random.default_rng(self.seed)
        drawn = rng.lognormal(np.log(self.mean_steps) - 0.08, 0.4, self.episodes)
        lengths = np.clip(np.rint(drawn), 50, 600).astype(np.int64)
        if self.recorder == "lerobot":
            lengths[-1] += -lengths.sum() % self.gop
        return lengths

    def video(self) -> VideoShape:
        """What each camera records."""
        return VideoShape(
            height=self.height,
            width=self.width,
            fps=self.fps,
            codec=self.codec,
            gop=self.gop,
            recorder=self.recorder,
        )


def write_lerobot_v3(root: Path, shape: DatasetShape) -> Path:
    """Write the dataset and return its root.

    Args:
        root: folder to create.
        shape: size of the dataset.
    """
    lengths = shape.lengths()
    ends = np.cumsum(lengths)
    starts = ends - lengths
    for number, camera in enumerate(shape.cameras):
        path = root / f"videos/observation.images.{camera}/chunk-000/file-000.mp4"
        path.parent.mkdir(parents=True)
        write_looped(path, shape.video(), int(ends[-1]), seed=shape.seed + number)
    _write_rows(root / "data/chunk-000/file-000.parquet", shape, lengths)
    _write_meta(root, shape, starts, ends)
    return root


def _write_rows(path: Path, shape: DatasetShape, lengths: NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True)
    rng = np.random.default_rng(shape.seed + 1000)
    total = int(lengths.sum())
    frame_index = np.concatenate([np.arange(n) for n in lengths])
    state = np.cumsum(rng.normal(0, 0.02, (total, shape.dims)), axis=0).astype(np.float32)

    def vectors(values: NDArray[np.float32]) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), shape.dims)

    table = pa.table(
        {
            "observation.state": vectors(state),
            "action": vectors(np.roll(state, -1, axis=0)),
            "timestamp": pa.array((frame_index / shape.fps).astype(np.float32)),
            "frame_index": pa.array(frame_index),
            "episode_index": pa.array(np.repeat(np.arange(len(lengths)), lengths)),
            "index": pa.array(np.arange(total)),
            "task_index": pa.array(np.zeros(total, np.int64)),
        }
    )
    pq.write_table(table, path)


def _write_meta(
    root: Path, shape: DatasetShape, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> None:
    episodes = root / "meta/episodes/chunk-000/file-000.parquet"
    episodes.parent.mkdir(parents=True)
    count = len(starts)
    zeros = np.zeros(count, np.int64)
    columns: dict[str, object] = {
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
        "episode_index": np.arange(count),
        "tasks": [["move the block"]] * count,
        "length": ends - starts,
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "dataset_from_index": starts,
        "dataset_to_index": ends,
    }
    features: dict[str, object] = {
        name: {"dtype": "float32", "shape": [shape.dims], "names": None}
        for name in ("observation.state", "action")
    }
    features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    for name in ("frame_index", "episode_index", "index", "task_index"):
        features[name] = {"dtype": "int64", "shape": [1], "names": None}
    for camera in shape.cameras:
        key = f"observation.images.{camera}"
        columns[f"videos/{key}/chunk_index"] = zeros
        columns[f"videos/{key}/file_index"] = zeros
        columns[f"videos/{key}/from_timestamp"] = starts / shape.fps
        columns[f"videos/{key}/to_timestamp"] = ends / shape.fps
        features[key] = {
            "dtype": "video",
            "shape": [shape.height, shape.width, 3],
            "names": ["height", "width", "channels"],
        }
    pq.write_table(pa.table(columns), episodes)
    tasks = pa.table({"task_index": pa.array([0], pa.int64()), "task": ["move the block"]})
    # LeRobot reads it with pandas, which takes the texts as index where it is told to.
    tasks = tasks.replace_schema_metadata({"pandas": json.dumps(_TASK_INDEX)})
    pq.write_table(tasks, root / "meta/tasks.parquet")
    info = {
        "codebase_version": "v3.0",
        "robot_type": "bench",
        "fps": shape.fps,
        "total_episodes": count,
        "total_frames": int(ends[-1]),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 2000,
        "splits": {"train": f"0:{count}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features,
    }
    (root / "meta/info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
