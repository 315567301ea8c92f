"""Write one dataset: every episode read, verified, turned into rows and clips, and measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.export.lerobot.mp4 import Clip
from ingest.export.lerobot.output import DatasetOutput, EpisodeOutput, Layout
from ingest.export.lerobot.picture_stats import Histogram, PictureSampler
from ingest.export.lerobot.plan import PlannedDataset, PlannedEpisode, recorded_times
from ingest.export.lerobot.rows import episode_rows
from ingest.export.lerobot.schema import Column, Schema
from ingest.export.lerobot.tasks import TASK_INDEX, TaskTable, task_table
from ingest.export.lerobot.timeline import place, step_times
from ingest.export.lerobot.vector_stats import ColumnSpool, Stats, has_stats, vector_stats
from lake.episode import Episode
from lake.read import read_episode_at
from lake.store import Lake


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of a dataset.

    Attributes:
        episodes, steps, frames, video_bytes: how much was written; pictures in rows count as
            frames and bytes too.
        files: number of data and video files.
    """

    episodes: int
    steps: int
    frames: int
    video_bytes: int
    files: int


def write_dataset(
    lake: Lake,
    planned: PlannedDataset,
    root: Path,
    layout: Layout,
    on_episode: Callable[[Episode], None],
) -> Written:
    """Write a dataset into the folder `root`, which is there.

    Raises:
        CorruptDataError: stored bytes do not match their checksums.
        ExportError: a file that was written does not hold what was put into it.
    """
    schema = planned.schema
    table = task_table([episode.tasks for episode in planned.episodes])
    histograms = {camera.key: Histogram(camera) for camera in schema.cameras}
    sampler = PictureSampler()
    steps = frames = video_bytes = 0
    try:
        with ColumnSpool(root / ".columns") as spool:
            for number, plan in enumerate(planned.episodes):
                episode = read_episode_at(lake, plan.address)
                values = _values(episode, plan, schema, table, number, steps)
                measured = {
                    column.key: values[column.key] for column in schema.columns if has_stats(column)
                }
                spool.add(measured)
                stats = {key: vector_stats(array) for key, array in measured.items()}
                for camera in schema.cameras:
                    histogram = sampler.histogram(camera, episode.cameras[camera.name])
                    histograms[camera.key].add(histogram)
                    stats[camera.key] = histogram.stats()
                layout.add(
                    EpisodeOutput(
                        index=number,
                        first_row=steps,
                        rows=episode_rows(layout.data_schema, schema, values, episode.cameras),
                        clips=_clips(episode, schema),
                        tasks=table.used(plan.tasks),
                        stats=stats,
                    )
                )
                steps += episode.num_steps
                indexes = [episode.cameras[camera.name].index for camera in schema.cameras]
                frames += episode.num_steps * len(indexes)
                video_bytes += sum(index.num_bytes for index in indexes)
                on_episode(episode)
            total: dict[str, Stats] = spool.stats()
        total |= {key: histogram.stats() for key, histogram in histograms.items()}
        files = layout.finish(
            DatasetOutput(
                schema=schema,
                episodes=len(planned.episodes),
                steps=steps,
                tasks=table.texts,
                splits=_splits(planned.episodes),
                stats=total,
            )
        )
    except BaseException:
        layout.abandon()
        raise
    return Written(
        episodes=len(planned.episodes),
        steps=steps,
        frames=frames,
        video_bytes=video_bytes,
        files=files,
    )


def _values(
    episode: Episode,
    plan: PlannedEpisode,
    schema: Schema,
    table: TaskTable,
    number: int,
    first_row: int,
) -> dict[str, NDArray[Any]]:
    """Key -> [T, *shape] of every column."""
    count = episode.num_steps
    own: Mapping[str, NDArray[Any]] = {
        "timestamp": step_times(
            episode.timestamps_ns, schema.fps, recorded_times(schema, episode.features)
        ),
        "frame_index": np.arange(count, dtype=np.int64),
        "episode_index": np.full(count, number, np.int64),
        "index": np.arange(first_row, first_row + count, dtype=np.int64),
        TASK_INDEX: table.new_indices(
            plan.tasks, TASK_INDEX, episode.features.get(TASK_INDEX), count
        ),
    }
    return {column.key: _value(column, own, episode, plan, table) for column in schema.columns}


def _value(
    column: Column,
    own: Mapping[str, NDArray[Any]],
    episode: Episode,
    plan: PlannedEpisode,
    table: TaskTable,
) -> NDArray[Any]:
    if column.key in own:
        return own[column.key]
    values = episode.features[column.name].reshape(episode.num_steps, *column.shape)
    if column.name in plan.tasks.columns:
        new = table.new_indices(plan.tasks, column.name, values, episode.num_steps)
        return new.astype(values.dtype)
    return values


def _clips(episode: Episode, schema: Schema) -> dict[str, Clip]:
    return {
        camera.key: Clip.of(video, place(camera.name, video.index))
        for camera in schema.videos
        for video in (episode.cameras[camera.name],)
    }


def _splits(episodes: list[PlannedEpisode]) -> dict[str, str]:
    splits, first = {}, 0
    for name, group in groupby(episodes, key=lambda episode: episode.split):
        stop = first + len(list(group))
        splits[name] = f"{first}:{stop}"
        first = stop
    return splits
