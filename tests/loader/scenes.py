"""A small lake with real video, and plans of it."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake import CameraVideo, Episode, Lake, create_lake
from lake.video_encode import encode_frames
from lake.writer import EpisodeWriter
from loader.batch import NumpyBatch, PackedBatch, dtype_name
from loader.process.wire import Frame
from loader.proof.digest import batch_digest
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.spans import SpanMaker
from packing.window_spans import WindowSpans
from tests.episodes import make_episode

EPISODES = 7


def coded_video(
    seed: int, steps: int, *, height: int = 32, width: int = 48, gop: int = 4, gap: bool = False
) -> CameraVideo:
    """H.264 of a moving random picture; with `gap` the second and third step show no frame."""
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
    frames = [np.roll(picture, 3 * number, axis=1) for number in range(steps)]
    shown = np.arange(steps, dtype=np.int32)
    if gap:
        shown[1:3] = -1
    return encode_frames(frames, fps=10, step_to_frame=shown, gop=gop)


@functools.cache
def scene_episode(number: int) -> Episode:
    """Episodes differ in length, cameras, picture size, gaps and invalid actions."""
    steps = 9 + 4 * number
    cameras = {"top": coded_video(number, steps, gap=number == 2)}
    if number % 2:
        cameras["wrist"] = coded_video(50 + number, steps, height=48, width=64)
    if number == 4:
        cameras = {}
    episode = make_episode(number, steps=steps, cameras=cameras)
    if number != 3:
        return episode
    valid = np.ones(steps, np.bool_)
    valid[[2, 7]] = False
    features = dict(episode.features)
    features["action"] = features["action"].copy()
    features["action"][~valid] = np.nan
    return make_episode(
        number, steps=steps, cameras=cameras, features=features, valid={"action": valid}
    )


def scene_lake(folder: Path) -> Lake:
    """A lake of `EPISODES` episodes on local disk."""
    return fill_lake(create_lake(folder / "scene.lake"))


def fill_lake(lake: Lake) -> Lake:
    """Write the episodes of the scene."""
    with EpisodeWriter(lake) as writer:
        for number in range(EPISODES):
            writer.add(scene_episode(number))
    lake.refresh()
    return lake


def scene_plan(lake: Lake, *, spans: SpanMaker | None = None, **settings: Any) -> Plan:
    """A plan of all its episodes: many small packs, three slots per step."""
    chosen = {"budget_tokens": 256, "slots_per_step": 3, "epochs": 2, "look_ahead": 16}
    layout = TokenLayout(image_tokens=4)
    maker = spans or WindowSpans(horizon=5, history=2, history_stride=3)
    return make_plan(lake, spans=maker, **{**chosen, "layout": layout, **settings})


def written(batch: NumpyBatch) -> NDArray[np.uint8]:
    """uint8 [bytes]: the batch in a buffer that it fills exactly."""
    arrays = {name: (dtype_name(a), tuple(a.shape)) for name, a in batch.arrays()}
    frame = Frame.plan(batch.scalars(), arrays)
    buffer = np.full(frame.nbytes, 0xAA, np.uint8)
    views = frame.views(buffer)
    for name, array in batch.arrays():
        views[name][...] = array
    return buffer


def digest(batch: PackedBatch[Any]) -> str:
    """Hex digest over every field of a batch."""
    return batch_digest(batch)


def as_numpy(array: Any) -> NDArray[Any]:
    """A numpy array of a numpy array or torch tensor."""
    return np.ascontiguousarray(array)


def planned_spans(plan: Plan) -> list[tuple[int, int, list[int]]]:
    """(step, slot, span ids) of every row of a plan, read independently of the loader."""
    table = plan.packs
    return list(
        zip(
            table["step"].to_pylist(),
            table["slot"].to_pylist(),
            table["span_id"].to_pylist(),
            strict=True,
        )
    )
