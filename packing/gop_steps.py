"""At which steps of an episode a group of pictures begins, read from few packet indexes.

A packet index says it, but the indexes of a large lake are too much to read for a plan. Recorders
that encode every episode by itself begin it with a key frame, and further ones follow at one
distance: where some episodes of a dataset show that, the others are taken to be alike if they have
as many key frames as that asks for. Of all others (cut from longer videos, or with key frames where
the scene changes) the indexes are read.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.read_video import read_video_indexes
from lake.store import Lake
from lake.video_index import VideoIndex
from lake.video_runs import RunTable
from packing.spans import Int64s

Bools = NDArray[np.bool_]

COLUMNS: Final = ("dataset", "num_steps", "cameras", "camera_key_frames")
_SAMPLED: Final = 8  # episodes per dataset and camera
_CHUNK: Final = 1024


def read_groups(lake: Lake, rows: pa.Table, used: Sequence[str], step_offsets: Int64s) -> Bools:
    """Bool [sum T]: whether a step shows the first picture of a group, or a later one of it.

    Of several cameras that with the longest groups decides: those of the others are short, and cost
    less where they are cut. Without a camera every step is by itself.

    Args:
        lake: pinned.
        rows: of `trajectories`, with `COLUMNS` and their `address`.
        used: cameras of the plan.
        step_offsets: int64 [E+1], where each episode's steps begin.

    Raises:
        LakeError: an index cannot be read, or is damaged.
    """
    num_steps = np.diff(step_offsets)
    deciding, keys = _deciding_cameras(rows, used)
    groups = np.ones(int(step_offsets[-1]), np.bool_)
    sampled: dict[tuple[str, str], list[int]] = {}
    datasets = rows["dataset"].to_pylist()
    for row, camera in enumerate(deciding):
        if camera is not None:
            sampled.setdefault((datasets[row], camera), []).append(row)
    unlike: list[int] = []
    for ours in sampled.values():
        some = sorted({ours[at * len(ours) // _SAMPLED] for at in range(_SAMPLED)})
        found = dict(_read(lake, rows, deciding, some))
        others = np.setdiff1d(ours, some)
        distance = _one_distance(list(found.values()))
        for row, begins in found.items():
            groups[step_offsets[row] : step_offsets[row + 1]] = begins
        if distance is None:
            unlike += others.tolist()
            continue
        alike = keys[others] == -(-num_steps[others] // distance)
        unlike += others[~alike].tolist()
        for row in others[alike].tolist():
            ours_steps = groups[step_offsets[row] : step_offsets[row + 1]]
            ours_steps[:] = False
            ours_steps[::distance] = True
    for row, begins in _read(lake, rows, deciding, sorted(unlike)):
        groups[step_offsets[row] : step_offsets[row + 1]] = begins
    return groups


def group_steps(index: VideoIndex) -> Bools:
    """Bool [T] of one camera: True at the first step, and where a group begins to be shown."""
    shown = np.flatnonzero(index.step_to_frame >= 0)
    begins = np.zeros(len(index.step_to_frame), np.bool_)
    start = RunTable.of(index).start[index.step_to_frame[shown]]
    begins[shown[np.diff(start, prepend=-1) != 0]] = True
    begins[:1] = True
    return begins


def _deciding_cameras(rows: pa.Table, used: Sequence[str]) -> tuple[list[str | None], Int64s]:
    """Of each episode the used camera with the fewest key frames, and how many those are."""
    chosen: list[str | None] = []
    keys = np.zeros(rows.num_rows, np.int64)
    known = set(used)
    for row, (names, counts) in enumerate(
        zip(rows["cameras"].to_pylist(), rows["camera_key_frames"].to_pylist(), strict=True)
    ):
        there = [(count, name) for name, count in zip(names, counts, strict=True) if name in known]
        keys[row], name = min(there, default=(0, None))
        chosen.append(name)
    return chosen, keys


def _read(
    lake: Lake, rows: pa.Table, deciding: Sequence[str | None], wanted: Sequence[int]
) -> Iterator[tuple[int, Bools]]:
    addresses = rows["address"].take(pa.array(wanted, pa.int64())).to_pylist()
    for at in range(0, len(wanted), _CHUNK):
        videos = read_video_indexes(lake, addresses[at : at + _CHUNK])
        for row, video in zip(wanted[at : at + _CHUNK], videos, strict=True):
            yield row, group_steps(video.cameras[str(deciding[row])])


def _one_distance(episodes: Sequence[Bools]) -> int | None:
    """The distance in steps at which groups of all of these episodes begin, from step 0 on."""
    gaps = [np.diff(np.flatnonzero(begins)) for begins in episodes]
    distance = int(max((gap[0] for gap in gaps if len(gap)), default=0))
    distance = distance or max(map(len, episodes))
    for begins in episodes:
        if not np.array_equal(np.flatnonzero(begins), np.arange(0, len(begins), distance)):
            return None
    return distance
