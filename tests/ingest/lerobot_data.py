"""Small LeRobot datasets, written with pyarrow and PyAV, for tests to damage."""

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.lerobot.source import FORMAT
from ingest.pipeline import read_episode
from ingest.source import EpisodeReading, Source, SourceOptions
from lake.episode import CameraVideo
from lake.video_decode import FrameDecoder
from lake.video_runs import decode_runs

TASKS = ("pick the cube", "open the drawer")
FPS = 10
DIMS = 3
OPENED: list[Source] = []


def write_video(
    path: Path,
    num_frames: int,
    *,
    fps: int = FPS,
    first: int = 0,
    b_frames: int = 0,
    start_pts: int = 0,
    size: tuple[int, int] = (48, 64),
) -> None:
    """H.264, every frame a flat grey of its own number plus a moving bar; GOP 4."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, fps)
        stream.options = {"g": "4", "bf": str(b_frames), "preset": "ultrafast", "threads": "1"}
        for number in range(num_frames):
            picture = np.full((*size, 3), (first + number) * 5 % 256, np.uint8)
            picture[:, (first + number) % size[1]] = 255
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = start_pts + number
            frame.time_base = Fraction(1, fps)
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)


def plain_decode(path: Path) -> list[NDArray[Any]]:
    """Every frame of a file in display order, in its own pixel format."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray() for frame in container.decode(video=0)]


def decoded(video: CameraVideo, frames: Sequence[int] | None = None) -> dict[int, NDArray[Any]]:
    """Decoded frames by ordinal; all shown ones by default."""
    wanted = np.unique(video.index.step_to_frame if frames is None else np.asarray(frames))
    wanted = wanted[wanted >= 0]
    offsets, data = video.index.packet_offsets(), memoryview(video.payload)
    decoder = FrameDecoder()
    return {
        int(number): frame.to_ndarray()
        for run in decode_runs(video.index, wanted)
        for number, frame in decoder.decode(
            video.index, run, data[offsets[run.first_packet] : offsets[run.stop_packet]]
        )
    }


def rows_of(index: int, steps: int, *, first_row: int, task: int = 0) -> dict[str, Any]:
    """Columns of one episode; state and action say which episode and step they are of."""
    numbers = np.arange(steps)
    state = (index * 100 + numbers)[:, None] + np.arange(DIMS) / 10
    return {
        "observation.state": state.astype(np.float32).tolist(),
        "action": (-state).astype(np.float32).tolist(),
        "timestamp": (numbers / FPS).astype(np.float32),
        "frame_index": numbers,
        "episode_index": np.full(steps, index),
        "index": first_row + numbers,
        "task_index": np.full(steps, task),
    }


SCHEMA = pa.schema(
    [
        ("observation.state", pa.list_(pa.float32(), DIMS)),
        ("action", pa.list_(pa.float32(), DIMS)),
        ("timestamp", pa.float32()),
        ("frame_index", pa.int64()),
        ("episode_index", pa.int64()),
        ("index", pa.int64()),
        ("task_index", pa.int64()),
    ]
)


def _info(version: str, lengths: Sequence[int], cameras: Sequence[str]) -> dict[str, Any]:
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [DIMS], "names": ["x", "y", "z"]},
        "action": {"dtype": "float32", "shape": [DIMS], "names": {"motors": ["x", "y", "z"]}},
    }
    for camera in cameras:
        features[camera] = {
            "dtype": "video",
            "shape": [48, 64, 3],
            "names": ["height", "width", "channels"],
            "info": {"video.codec": "h264", "video.fps": FPS},
        }
    for name in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
        dtype = "float32" if name == "timestamp" else "int64"
        features[name] = {"dtype": dtype, "shape": [1], "names": None}
    return {
        "codebase_version": f"v{version}",
        "robot_type": "toy_arm",
        "fps": FPS,
        "features": features,
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": len(TASKS),
        "chunks_size": 1000,
        "splits": {"train": f"0:{len(lengths)}"},
    }


def write_v2(
    root: Path,
    lengths: Sequence[int] = (5, 7),
    cameras: Sequence[str] = ("observation.images.top",),
    *,
    version: str = "2.1",
) -> Path:
    """A sound v2 dataset; episode i has task i % 2 and frames numbered from 0."""
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(_info(version, lengths, cameras)))
    write_lines(
        root / "meta/tasks.jsonl", [{"task_index": i, "task": t} for i, t in enumerate(TASKS)]
    )
    episodes = [
        {"episode_index": i, "tasks": [TASKS[i % 2]], "length": n} for i, n in enumerate(lengths)
    ]
    write_lines(root / "meta/episodes.jsonl", episodes)
    first_row = 0
    for index, steps in enumerate(lengths):
        rows = rows_of(index, steps, first_row=first_row, task=index % 2)
        write_rows(root / v2_data(index), [rows])
        for camera in cameras:
            write_video(root / v2_video(camera, index), steps, first=index * 20)
        first_row += steps
    return root


def v2_data(index: int) -> str:
    return f"data/chunk-000/episode_{index:06d}.parquet"


def v2_video(camera: str, index: int) -> str:
    return f"videos/chunk-000/{camera}/episode_{index:06d}.mp4"


V3_DATA = "data/chunk-000/file-000.parquet"
V3_EPISODES = "meta/episodes/chunk-000/file-000.parquet"
V3_TASKS = "meta/tasks.parquet"


def v3_video(camera: str, file: int = 0) -> str:
    return f"videos/{camera}/chunk-000/file-{file:03d}.mp4"


def write_v3(
    root: Path,
    lengths: Sequence[int] = (5, 7, 4),
    cameras: Sequence[str] = ("observation.images.top",),
    *,
    b_frames: int = 0,
    row_group_size: int | None = None,
) -> Path:
    """A sound v3 dataset: one data file and one video file per camera for all episodes."""
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(_info("3.0", lengths, cameras)))
    write_tasks(root, dict(enumerate(TASKS)))
    starts = np.cumsum([0, *lengths])
    rows = [rows_of(i, n, first_row=int(starts[i]), task=i % 2) for i, n in enumerate(lengths)]
    write_rows(root / V3_DATA, rows, row_group_size=row_group_size)
    episodes = []
    for index, steps in enumerate(lengths):
        row: dict[str, Any] = {
            "episode_index": index,
            "tasks": [TASKS[index % 2]],
            "length": steps,
            "data/chunk_index": 0,
            "data/file_index": 0,
            "dataset_from_index": int(starts[index]),
            "dataset_to_index": int(starts[index + 1]),
        }
        for camera in cameras:
            row[f"videos/{camera}/chunk_index"] = 0
            row[f"videos/{camera}/file_index"] = 0
            row[f"videos/{camera}/from_timestamp"] = int(starts[index]) / FPS
            row[f"videos/{camera}/to_timestamp"] = int(starts[index + 1]) / FPS
        episodes.append(row)
    write_parquet(root / V3_EPISODES, pa.Table.from_pylist(episodes))
    for number, camera in enumerate(cameras):
        write_video(root / v3_video(camera), int(starts[-1]), first=number * 10, b_frames=b_frames)
    return root


def write_tasks(root: Path, tasks: Mapping[int, str], *, text_column: str = "task") -> None:
    """`meta/tasks.parquet` with its rows in the order of the mapping."""
    table = pa.table({"task_index": list(tasks), text_column: list(tasks.values())})
    pandas = {"index_columns": [text_column], "columns": []}
    write_parquet(
        root / V3_TASKS, table.replace_schema_metadata({b"pandas": json.dumps(pandas).encode()})
    )


def write_rows(
    path: Path, episodes: Sequence[Mapping[str, Any]], *, row_group_size: int | None = None
) -> None:
    tables = [pa.table(dict(rows), schema=SCHEMA) for rows in episodes]
    write_parquet(path, pa.concat_tables(tables), row_group_size=row_group_size)


def write_parquet(path: Path, table: pa.Table, *, row_group_size: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def edit_info(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change `meta/info.json` in place."""
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def edit_rows(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite a parquet file."""
    write_parquet(path, change(pq.ParquetFile(path).read()))


def replace_column(
    table: pa.Table, name: str, values: Any, kind: pa.DataType | None = None
) -> pa.Table:
    """The table with the column set to (or added with) other values."""
    column = pa.array(values, kind)
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def open_source(root: Path, options: SourceOptions | None = None) -> Source:
    """Open a dataset; closed at the end of the test by a fixture of this folder."""
    assert FORMAT.recognises(root)
    source = FORMAT.open(root, options or SourceOptions())
    OPENED.append(source)
    return source


def read_all(root: Path) -> list[EpisodeReading]:
    """All episodes of a dataset, in order; raises what a reader raises."""
    source = open_source(root)
    try:
        return [read_episode(source, entry) for entry in source.entries()]
    finally:
        source.close()


def reasons(findings: Sequence[Any]) -> set[str]:
    return {finding.reason for finding in findings}


def same_frames(root: Path, episode: Any, file: str, steps: range) -> None:
    """Every step shows, bit for bit, the frame of its number in the file."""
    frames, truth = decoded(episode.cameras["top"]), plain_decode(root / file)
    shown = episode.cameras["top"].index.step_to_frame
    for step in steps:
        assert (frames[int(shown[step])] == truth[step]).all(), step
