"""A LeRobot v3.0 dataset on disk for benches, written with pyarrow and PyAV alone.

Pictures are a moving textured scene, so that packets have realistic sizes. One clip per camera is
encoded and its packets are repeated through the file, every repeat starting at an IDR picture:
the stream is as long as wanted and costs a few seconds to make. Episodes differ in length and share
one file per camera, as LeRobot's recorder writes them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from av.video.stream import VideoStream
from numpy.typing import NDArray

_CLIP_FRAMES = 240


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
    fps: int = 30
    dims: int = 14
    seed: int = 0

    def lengths(self) -> NDArray[np.int64]:
        """int64 [episodes]: steps per episode, between 50 and 600."""
        rng = np.random.default_rng(self.seed)
        drawn = rng.lognormal(np.log(self.mean_steps) - 0.08, 0.4, self.episodes)
        return np.clip(np.rint(drawn), 50, 600).astype(np.int64)


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
        _write_video(path, shape, int(ends[-1]), seed=shape.seed + number)
    _write_rows(root / "data/chunk-000/file-000.parquet", shape, lengths)
    _write_meta(root, shape, starts, ends)
    return root


def pictures(shape: DatasetShape, seed: int) -> Sequence[NDArray[np.uint8]]:
    """A clip of 240 pictures, uint8 [height, width, 3] each: a view that circles over a texture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(60, 196, (shape.height // 20 + 8, shape.width // 20 + 8, 3))
    scene = np.kron(coarse, np.ones((20, 20, 1), np.int64))
    frames = []
    for t in range(_CLIP_FRAMES):
        dy, dx = (round(40 + 30 * f(2 * np.pi * t / _CLIP_FRAMES)) for f in (np.sin, np.cos))
        view = scene[dy : dy + shape.height, dx : dx + shape.width]
        frames.append(np.ascontiguousarray(view.astype(np.uint8)))
    return frames


def _write_video(path: Path, shape: DatasetShape, frames: int, *, seed: int) -> None:
    options = {"g": str(shape.gop), "crf": "30", "bf": "0"}
    options |= {"preset": "veryfast"} if shape.codec == "libx264" else {"preset": "12"}
    with av.open(str(path), "w") as container:
        stream = container.add_stream(shape.codec, rate=shape.fps, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = shape.width, shape.height, "yuv420p"
        stream.time_base = Fraction(1, shape.fps)
        clip: list[tuple[bytes, bool]] = []
        for index, picture in enumerate(pictures(shape, seed)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, shape.fps)
            clip += [(bytes(p), p.is_keyframe) for p in stream.encode(frame)]
        clip += [(bytes(p), p.is_keyframe) for p in stream.encode(None)]
        for index in range(frames):
            data, key = clip[index % len(clip)]
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, Fraction(1, shape.fps)
            packet.pts = packet.dts = index
            packet.duration, packet.is_keyframe = 1, key
            container.mux(packet)


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
    pq.write_table(tasks, root / "meta/tasks.parquet")
    info = {
        "codebase_version": "v3.0",
        "robot_type": "bench",
        "fps": shape.fps,
        "total_episodes": count,
        "total_frames": int(ends[-1]),
        "total_tasks": 1,
        "chunks_size": 1000,
        "splits": {"train": f"0:{count}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features,
    }
    (root / "meta/info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
