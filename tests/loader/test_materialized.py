"""Reading materialised packs: the same batches, bit for bit, as from the episodes."""

from typing import Any

import numpy as np
import pytest

from lake import CameraVideo, Episode, Lake, create_lake
from lake.video_encode import encode_frames
from lake.writer import EpisodeWriter
from loader import PackLoader
from loader.materialize import materialize
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.spans import SpanMaker
from packing.trajectory_spans import TrajectorySpans
from packing.window_spans import WindowSpans
from tests.episodes import make_episode, moving_pictures
from tests.loader import scenes
from tests.loader.video_kinds import bframe_video, jpeg_video

_INLINE: dict[str, Any] = {"process": "inline", "framework": "numpy"}


def _pictures(codec: str, steps: int) -> CameraVideo:
    shown = np.arange(steps, dtype=np.int32)
    return encode_frames(moving_pictures(steps), fps=10, step_to_frame=shown, codec=codec)  # type: ignore[arg-type]  # a name from below


def _mixed_episodes() -> list[Episode]:
    """Codecs, GOPs, gaps, absent cameras, embodiments and dtypes that differ."""
    steps = 23
    cameras: list[dict[str, CameraVideo]] = [
        {"top": scenes.coded_video(0, steps, gop=2)},
        {"top": scenes.coded_video(1, steps, gop=50), "wrist": scenes.coded_video(2, steps, gop=7)},
        {"top": bframe_video(steps), "side": scenes.coded_video(3, steps, height=47, width=63)},
        {"top": _pictures("png", steps), "wrist": jpeg_video(steps)},
        {"top": scenes.coded_video(4, steps, gop=6, gap=True)},
        {},
    ]
    return [
        make_episode(
            number,
            steps=steps,
            cameras=videos,
            dtype="float64" if number % 2 else "float32",
            embodiment=f"arm-{number % 3}",
        )
        for number, videos in enumerate(cameras)
    ]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = create_lake(tmp_path_factory.mktemp("mixed") / "x.lake")
    with EpisodeWriter(lake) as writer:
        for episode in _mixed_episodes():
            writer.add(episode)
    lake.refresh()
    return lake


MAKERS: dict[str, SpanMaker] = {
    "one observation": WindowSpans(horizon=5),
    "history": WindowSpans(horizon=4, history=3, history_stride=2, stride=2),
    "trajectories": TrajectorySpans(max_steps=9, observe_every=3),
}


def _batches(lake: Lake, plan: Plan, **options: Any) -> list[str]:
    with PackLoader(lake, plan, **_INLINE, **options) as loader:
        return [scenes.digest(batch) for batch in loader]


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS.keys())
def test_every_field_of_every_batch_is_equal(mixed: Lake, maker: SpanMaker) -> None:
    plan = make_plan(
        mixed,
        spans=maker,
        layout=TokenLayout(image_tokens=4),
        budget_tokens=256,
        slots_per_step=11,
        epochs=2,
        seed=3,
    )
    save_plan(mixed, plan)
    materialize(mixed, plan, workers=0, chunk_packs=7)
    for options in ({}, {"image_size": (24, 32)}, {"world_size": 3, "rank": 2}):
        expected = _batches(mixed, plan, **options)
        assert _batches(mixed, plan, materialized=True, **options) == expected
    with PackLoader(mixed, plan, **_INLINE, materialized=True) as loader:
        assert loader.source == "materialized copy"
        kinds = set()
        for batch in loader:
            kinds |= {bucket.shape[2:] for bucket in batch.images if len(bucket)}
    assert kinds == {(32, 48), (47, 63), (48, 64)}
    assert (plan.packs["span_id"].combine_chunks().value_lengths().to_numpy() == 0).any()
