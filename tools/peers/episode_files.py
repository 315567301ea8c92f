"""A LeRobot dataset taken apart into what stream formats hold: episodes as MP4, or steps as JPEG.

Packets are copied, never encoded again: an episode's MP4 begins at the key frame at or before its
first frame, so `first` frames come before those that are shown.
"""

import io
import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class EpisodeFile:
    """One episode.

    Attributes:
        episode: its number.
        state, action: float32 [T, D].
        videos: camera feature -> MP4.
        first: camera feature -> frames before the episode's first.
    """

    episode: int
    state: NDArray[np.float32]
    action: NDArray[np.float32]
    videos: dict[str, bytes]
    first: dict[str, int]


def episodes(root: Path) -> Iterator[EpisodeFile]:
    """Every episode of a LeRobot v3.0 dataset that has one file per camera and one of rows."""
    info = json.loads((root / "meta/info.json").read_text(encoding="utf-8"))
    rows = pq.read_table(root / "data/chunk-000/file-000.parquet")
    state, action = (_vectors(rows[name]) for name in ("observation.state", "action"))
    bounds = pq.read_table(
        root / "meta/episodes/chunk-000/file-000.parquet",
        columns=["dataset_from_index", "dataset_to_index"],
    ).to_pylist()
    cameras = [name for name, feature in info["features"].items() if feature["dtype"] == "video"]
    cutters = {
        camera: _cut(root / f"videos/{camera}/chunk-000/file-000.mp4", bounds, info["fps"])
        for camera in cameras
    }
    for episode, bound in enumerate(bounds):
        begin, end = bound["dataset_from_index"], bound["dataset_to_index"]
        cuts = {camera: next(cutter) for camera, cutter in cutters.items()}
        yield EpisodeFile(
            episode=episode,
            state=state[begin:end],
            action=action[begin:end],
            videos={camera: video for camera, (video, _) in cuts.items()},
            first={camera: first for camera, (_, first) in cuts.items()},
        )


def action_chunk(action: NDArray[np.float32], step: int, chunk: int) -> NDArray[np.float32]:
    """float32 [chunk, D]: the actions from a step on, the last one repeated past the end."""
    taken: NDArray[np.float32] = action[np.minimum(np.arange(step, step + chunk), len(action) - 1)]
    return taken


def decode(video: bytes, first: int, count: int) -> Iterator[NDArray[np.uint8]]:
    """`count` frames uint8 [h, w, 3] of an episode's MP4 after its `first`, by one thread."""
    with av.open(io.BytesIO(video), "r") as container:
        stream = container.streams.video[0]
        stream.thread_count = 1
        for frame in itertools.islice(container.decode(stream), first, first + count):
            picture: Any = frame.to_ndarray(format="rgb24")
            yield picture


def _vectors(column: Any) -> NDArray[np.float32]:  # noqa: ANN401  # an Arrow column
    values = column.combine_chunks()
    flat: NDArray[np.float32] = values.flatten().to_numpy()
    return flat.reshape(len(values), -1)


def _cut(path: Path, bounds: list[dict[str, int]], fps: int) -> Iterator[tuple[bytes, int]]:
    """MP4 and leading frames of every episode; the file has them end to end, in closed groups."""
    with av.open(str(path), "r") as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        groups = [number for number, packet in enumerate(packets) if packet.is_keyframe]
        keys = [_frame(packets[group], fps) for group in groups]
        for bound in bounds:
            begin, end = bound["dataset_from_index"], bound["dataset_to_index"]
            first = bisect_right(keys, begin) - 1
            stop = bisect_left(keys, end)
            last = groups[stop] if stop < len(groups) else len(packets)
            file = io.BytesIO()
            with av.open(file, "w", format="mp4") as out:
                copy = out.add_stream_from_template(stream, opaque=True)  # no encoder is needed
                for packet in packets[groups[first] : last]:
                    out.mux(_shifted(packet, copy, packets[groups[first]].pts or 0))
            yield file.getvalue(), begin - keys[first]


def _frame(packet: Any, fps: int) -> int:  # noqa: ANN401  # an av.Packet
    frame: int = round(packet.pts * packet.time_base * fps)
    return frame


def _shifted(packet: Any, stream: Any, earlier: int) -> Any:  # noqa: ANN401  # of PyAV
    """A copy of a packet for another file, shown earlier by so many ticks."""
    part: Any = av.Packet(bytes(packet))
    part.stream, part.time_base = stream, packet.time_base
    part.pts, part.dts = packet.pts - earlier, packet.dts - earlier
    part.duration, part.is_keyframe = packet.duration, packet.is_keyframe
    return part
