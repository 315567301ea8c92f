"""What the storage model must know of a plan's episodes: sizes, and how their video is coded.

Sizes are facts of every episode, read in one scan of small columns. How the bytes of a group of
pictures are spread over its frames stands in packet indexes alone, which are too many to read: a
few episodes of each dataset stand for the others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.object_store import is_object_store
from lake.read_video import EpisodeVideos, read_video_indexes
from lake.store import OBJECT_STORE_BLOCK_BYTES, Lake
from lake.video_index import VideoIndex
from lake.video_runs import RunTable
from lake.visible import visible_episodes
from packing.errors import PlanError
from packing.plan_header import PlanHeader
from packing.seeded import STREAM_SAMPLE, permutation
from packing.spans import Int64s

_COLUMNS: Final = (
    *("episode_id", "features", "cameras", "camera_bytes", "camera_frames", "camera_key_frames"),
    *("camera_widths", "camera_heights"),
)
_SAMPLED_PER_DATASET: Final = 8
_MOST_SAMPLED: Final = 256
_BLOCK_BYTES: Final = 4 << 10  # reads on a disk that lie closer are merged by Lance
_INDEX_HEADER, _INDEX_PER_PACKET, _INDEX_PER_STEP = 240, 25, 4


@dataclass(frozen=True, kw_only=True)
class GopProfile:
    """How cameras of a dataset are coded.

    Attributes:
        gop_frames: frames of a group of pictures; 1 where every frame is a key frame.
        frames_to: float64 [gop_frames]: the bytes that must be read to decode the n-th frame of a
            group, in units of the camera's mean frame.
    """

    gop_frames: int
    frames_to: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StorageFacts:
    """Facts of the E episodes and C cameras of a plan, in its numbering.

    Attributes:
        address: uint64 [E].
        num_steps: int64 [E].
        frames: int64 [E, C], frames of each camera; 0 where it is absent.
        video_bytes: int64 [E, C].
        video_offset: int64 [E, C], where its packets begin among those of the episode.
        frame_bytes: int64 [E, C], one decoded frame (YUV 4:2:0).
        gop_frames: int64 [E, C], frames of a group of pictures.
        profile: int64 [E, C], row of `profiles`.
        profiles: of datasets and cameras.
        index_bytes: int64 [E], packet indexes of all its cameras.
        cameras_stored: int64 [E], cameras of the episode, used by the plan or not.
        feature_bytes: per feature that the plan feeds, int64 [E] bytes of its values.
        features_stored: int64 [E].
        fetch_block_bytes: reads of one call that lie closer to each other are merged.
    """

    address: NDArray[np.uint64]
    num_steps: Int64s
    frames: Int64s
    video_bytes: Int64s
    video_offset: Int64s
    frame_bytes: Int64s
    gop_frames: Int64s
    profile: Int64s
    profiles: tuple[GopProfile, ...]
    index_bytes: Int64s
    cameras_stored: Int64s
    feature_bytes: tuple[Int64s, ...]
    features_stored: Int64s
    fetch_block_bytes: int


def read_storage_facts(
    lake: Lake,
    header: PlanHeader,
    episodes: pa.Table,
    *,
    fetch_block_bytes: int | None = None,
) -> StorageFacts:
    """Read them, at the versions that the plan pins.

    Args:
        lake: of the plan.
        header: of the plan.
        episodes: table of the plan.
        fetch_block_bytes: None for what the lake's reader uses: 4 KiB on a disk, 16 KiB on an
            object store.

    Raises:
        PlanError: episodes are gone, or the plan was made of another lake.
        LakeError: the lake cannot be read.
    """
    pinned = lake.at(header.versions)
    rows = visible_episodes(pinned, _COLUMNS)
    at = pc.index_in(episodes["episode_id"], value_set=rows["episode_id"].combine_chunks())
    if at.null_count:
        gone = episodes["episode_id"].filter(pc.is_null(at))
        raise PlanError(
            f"{lake.uri}: {len(gone)} episodes of the plan are not there, first {gone[0]}: they"
            " were deleted, or the plan was made of another lake; make a plan of this one"
        )
    rows = rows.take(at).combine_chunks()
    stored = _per_camera(rows, header)
    dataset = episodes["dataset"].to_numpy().astype(np.int64)
    profiles = _profiles(pinned, header, rows, stored, dataset)
    num_steps = episodes["num_steps"].to_numpy().astype(np.int64)
    cameras_stored = pc.list_value_length(rows["cameras"]).to_numpy().astype(np.int64)
    all_frames = _list_sums(rows["camera_frames"])
    return StorageFacts(
        address=rows["address"].to_numpy(),
        num_steps=num_steps,
        frames=stored["frames"],
        video_bytes=stored["bytes"],
        video_offset=stored["offset"],
        frame_bytes=stored["width"] * stored["height"] * 3 // 2,
        gop_frames=_gop_frames(stored, profiles, dataset),
        profile=dataset[:, None] * len(header.cameras) + np.arange(len(header.cameras)),
        profiles=profiles,
        index_bytes=cameras_stored * (_INDEX_HEADER + _INDEX_PER_STEP * num_steps)
        + _INDEX_PER_PACKET * all_frames,
        cameras_stored=cameras_stored,
        feature_bytes=_feature_bytes(pinned, header, episodes, num_steps),
        features_stored=pc.list_value_length(rows["features"]).to_numpy().astype(np.int64),
        fetch_block_bytes=fetch_block_bytes
        or (OBJECT_STORE_BLOCK_BYTES if is_object_store(lake.uri) else _BLOCK_BYTES),
    )


def _per_camera(rows: pa.Table, header: PlanHeader) -> dict[str, Int64s]:
    """Name -> int64 [E, C]; 0 where an episode lacks a camera."""
    cameras = rows["cameras"].combine_chunks()
    row = pc.list_parent_indices(cameras).to_numpy().astype(np.int64)
    number = pc.index_in(pc.list_flatten(cameras), value_set=pa.array(header.cameras, pa.string()))
    used = pc.is_valid(number).to_numpy(zero_copy_only=False)
    column = pc.fill_null(number, -1).to_numpy().astype(np.int64)[used]
    flat = {
        name: pc.list_flatten(rows[source]).to_numpy().astype(np.int64)
        for name, source in (
            ("bytes", "camera_bytes"),
            ("frames", "camera_frames"),
            ("keys", "camera_key_frames"),
            ("width", "camera_widths"),
            ("height", "camera_heights"),
        )
    }
    ends = np.cumsum(flat["bytes"])
    begins = ends - flat["bytes"]
    first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows.num_rows))])[:-1]
    flat["offset"] = begins - begins[first[row]]
    table = {}
    for name, values in flat.items():
        table[name] = np.zeros((rows.num_rows, len(header.cameras)), np.int64)
        table[name][row[used], column] = values[used]
    return table


def _list_sums(column: pa.ChunkedArray) -> Int64s:
    lists = column.combine_chunks()
    row = pc.list_parent_indices(lists).to_numpy()
    sums = np.bincount(row, pc.list_flatten(lists).to_numpy(), minlength=len(lists))
    return sums.astype(np.int64)


def _feature_bytes(
    lake: Lake, header: PlanHeader, episodes: pa.Table, num_steps: Int64s
) -> tuple[Int64s, ...]:
    """Per column that the loader reads, bytes of each episode's values."""
    width: dict[str, NDArray[np.int64]] = {}
    for number, spec in enumerate(header.specs):
        known = lake.spec(spec.spec_id)
        for name in dict.fromkeys(spec.state + spec.action):
            feature = known.feature(name)
            of_spec = width.setdefault(feature.column, np.zeros(len(header.specs), np.int64))
            of_spec[number] = feature.size * np.dtype(feature.dtype).itemsize
    spec_of = episodes["spec"].to_numpy()
    return tuple(of_spec[spec_of] * num_steps for of_spec in width.values())


def _profiles(
    lake: Lake, header: PlanHeader, rows: pa.Table, stored: dict[str, Int64s], dataset: Int64s
) -> tuple[GopProfile, ...]:
    """One per dataset and camera, from the indexes of a few episodes."""
    sums: dict[int, list[tuple[VideoIndex, float]]] = {}
    sampled = _sample(dataset, stored["frames"].sum(axis=1) > 0, header.seed)
    addresses = rows["address"].take(pa.array(sampled)).to_pylist()
    for episode, videos in zip(sampled.tolist(), _indexes(lake, addresses), strict=True):
        for camera, name in enumerate(header.cameras):
            if stored["frames"][episode, camera]:
                mean = stored["bytes"][episode, camera] / stored["frames"][episode, camera]
                key = int(dataset[episode]) * len(header.cameras) + camera
                sums.setdefault(key, []).append((videos.cameras[name], mean))
    count = len(header.datasets) * len(header.cameras)
    return tuple(_profile(sums.get(number, ())) for number in range(count))


def _sample(dataset: Int64s, filmed: NDArray[np.bool_], seed: int) -> Int64s:
    """Some episodes of each dataset, drawn by the seed."""
    order = permutation(len(dataset), seed, STREAM_SAMPLE)
    order = order[filmed[order]]
    by_dataset = order[np.argsort(dataset[order], kind="stable")]
    begins = np.flatnonzero(np.diff(dataset[by_dataset], prepend=-1))
    nth = np.arange(len(by_dataset)) - np.repeat(
        begins, np.diff(np.append(begins, len(by_dataset)))
    )
    chosen = by_dataset[np.argsort(nth, kind="stable")]  # the first of each dataset come first
    return np.sort(chosen[: min(int((nth < _SAMPLED_PER_DATASET).sum()), _MOST_SAMPLED)])


def _indexes(lake: Lake, addresses: list[int]) -> Iterator[EpisodeVideos]:
    for begin in range(0, len(addresses), 32):
        yield from read_video_indexes(lake, addresses[begin : begin + 32])


def _profile(videos: Iterable[tuple[VideoIndex, float]]) -> GopProfile:
    """The mean of some cameras, each with its mean bytes per frame."""
    lengths: list[int] = []
    total, count = np.zeros(0), np.zeros(0)
    for index, mean in videos:
        table = RunTable.of(index)
        frames = np.flatnonzero(table.packet >= 0)
        offsets = index.packet_offsets()
        start = table.start[frames]
        to = (offsets[table.packet[frames] + 1] - offsets[start]) / mean
        begins = np.flatnonzero(np.diff(start, prepend=-1))
        group_lengths = np.diff(np.append(begins, len(frames)))
        nth = np.arange(len(frames)) - np.repeat(begins, group_lengths)
        # The last group is cut short by the end of the episode.
        lengths += group_lengths[: max(1, len(begins) - 1)].tolist()
        size = max(len(total), int(nth.max()) + 1)
        total = np.pad(total, (0, size - len(total))) + np.bincount(nth, to, minlength=size)
        count = np.pad(count, (0, size - len(count))) + np.bincount(nth, minlength=size)
    if not lengths:
        return GopProfile(gop_frames=1, frames_to=np.ones(1))
    return GopProfile(gop_frames=int(np.median(lengths)), frames_to=total / count)


def _gop_frames(
    stored: dict[str, Int64s], profiles: tuple[GopProfile, ...], dataset: Int64s
) -> Int64s:
    """int64 [E, C]: the profile's where the number of key frames agrees, else their distance."""
    shape = (int(dataset.max()) + 1, stored["frames"].shape[1])
    lengths = np.array([profile.gop_frames for profile in profiles], np.int64)
    typical = lengths[: shape[0] * shape[1]].reshape(shape)[dataset]
    frames, keys = stored["frames"], np.maximum(stored["keys"], 1)
    agrees = np.abs(-(-frames // typical) - keys) <= 1
    return np.where(agrees, typical, np.maximum(1, -(-frames // keys)))
