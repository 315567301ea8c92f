"""Recordings, lakes and plans of the loader bench: LeRobot-like video in several codings."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.pipeline import ingest_sources
from lake import Lake, create_lake, open_lake
from loader.cursor import Place
from loader.fetch.plan_rows import PlanRows
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.trajectory_spans import TrajectorySpans
from packing.window_spans import WindowSpans
from tools.bench.lerobot_data import DatasetShape, write_lerobot_v3

CHUNK: Final = 50
WINDOWS_PER_PACK: Final = 32
_LAYOUT: Final = TokenLayout(name="bench", image_tokens=64)
_TRAJECTORY_BUDGET: Final = 8192


@dataclass(frozen=True, kw_only=True)
class Coding:
    """How the cameras' video is coded.

    Attributes:
        key: prefix of ratios.
        label: as tables show it.
        codec: PyAV encoder.
        gop: distance of key frames in frames.
    """

    key: str
    label: str
    codec: str
    gop: int


H264: Final = Coding(key="h264", label="H.264 GOP 2", codec="libx264", gop=2)
H264_GOP30: Final = Coding(key="h264_gop30", label="H.264 GOP 30", codec="libx264", gop=30)
AV1: Final = Coding(key="av1", label="AV1 GOP 2", codec="libsvtav1", gop=2)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A dataset, the lake that holds it, and a plan of all its windows.

    Attributes:
        coding: of its video.
        shape: its size.
        root: the LeRobot dataset.
        lake: holds it.
        windows: 32 windows of one step per pack, one pack per step, each window once.
        frame_bytes: mean bytes of a frame.
    """

    coding: Coding
    shape: DatasetShape
    root: Path
    lake: Lake
    windows: Plan
    frame_bytes: float


def record_all(
    folder: Path, episodes: Mapping[Coding, int], *, size: tuple[int, int]
) -> list[Recorded]:
    """As `record`, several at a time in processes of their own."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        work = [
            pool.submit(_write, folder, coding, _shape(coding, count, size))
            for coding, count in episodes.items()
        ]
        sizes = [each.result() for each in work]
    return [
        _open(folder, coding, _shape(coding, count, size), num_bytes)
        for (coding, count), num_bytes in zip(episodes.items(), sizes, strict=True)
    ]


def record(folder: Path, coding: Coding, *, episodes: int, size: tuple[int, int]) -> Recorded:
    """Write a dataset, ingest it and plan its windows.

    Args:
        folder: where the dataset and its lake are put.
        coding: of the video.
        episodes: of about 225 steps each.
        size: (height, width) of the pictures.
    """
    shape = _shape(coding, episodes, size)
    return _open(folder, coding, shape, _write(folder, coding, shape))


def _shape(coding: Coding, episodes: int, size: tuple[int, int]) -> DatasetShape:
    return DatasetShape(
        episodes=episodes,
        height=size[0],
        width=size[1],
        codec=coding.codec,
        gop=coding.gop,
        recorder="lerobot",
    )


def _write(folder: Path, coding: Coding, shape: DatasetShape) -> int:
    """Write the dataset and its lake; the bytes of its video."""
    root = write_lerobot_v3(folder / coding.key, shape)
    ingest_sources([root], create_lake(folder / f"{coding.key}.lake"))
    return sum(path.stat().st_size for path in root.rglob("*.mp4"))


def _open(folder: Path, coding: Coding, shape: DatasetShape, num_bytes: int) -> Recorded:
    lake = open_lake(folder / f"{coding.key}.lake")
    return Recorded(
        coding=coding,
        shape=shape,
        root=folder / coding.key,
        lake=lake,
        windows=plan_windows(lake),
        frame_bytes=num_bytes / (int(shape.lengths().sum()) * len(shape.cameras)),
    )


def plan_windows(lake: Lake) -> Plan:
    """A shuffled plan of every window: two cameras at one step, a chunk of 50 actions."""
    # The budget holds 32 of the largest windows, and the cap lets no pack have more.
    layout = _LAYOUT
    sample = make_plan(
        lake,
        spans=WindowSpans(horizon=CHUNK),
        layout=layout,
        budget_tokens=_TRAJECTORY_BUDGET,
        slots_per_step=1,
    )
    most = WINDOWS_PER_PACK * sample.header.shape.span_tokens
    return make_plan(
        lake,
        spans=WindowSpans(horizon=CHUNK),
        layout=layout,
        budget_tokens=-(-most // 128) * 128,
        max_spans=WINDOWS_PER_PACK,
        slots_per_step=1,
    )


def plan_trajectories(lake: Lake, episode_ids: Sequence[str]) -> Plan:
    """A plan of whole episodes, those longer than a pack in parts that follow each other."""
    return make_plan(
        lake,
        list(episode_ids),
        spans=TrajectorySpans(),
        layout=_LAYOUT,
        budget_tokens=_TRAJECTORY_BUDGET,
        slots_per_step=1,
    )


def planned_order(plan: Plan, shape: DatasetShape, *, packs: int) -> NDArray[np.int64]:
    """The windows of the first packs in the plan's order: int64 [n, 2], episode and step.

    Episodes are numbered as in the dataset, whose ids begin with that number's name.
    """
    rows = PlanRows(plan)
    number = np.array([_episode_number(text) for text in rows.episode_id.to_pylist()])
    places = [
        Place(position=step, step=step, slot=0, last_of_step=True)
        for step in range(min(packs, plan.header.num_steps))
    ]
    order = [
        np.stack([number[row.episode], row.action_start.astype(np.int64)], axis=1)
        for row in rows.read(places)
    ]
    planned = np.concatenate(order).astype(np.int64)
    assert (planned[:, 1] < shape.lengths()[planned[:, 0]]).all()
    return planned


def _episode_number(episode_id: str) -> int:
    """12 of `dataset/episode_000012-6106cb89e1e3`."""
    return int(episode_id.rpartition("/")[2].removeprefix("episode_").partition("-")[0])
