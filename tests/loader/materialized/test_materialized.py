"""Reading materialised packs: the same batches, bit for bit, as from the episodes."""

import dataclasses
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lake import CameraVideo, Episode, Lake, create_lake, open_lake
from lake.video_encode import encode_frames
from lake.writer import EpisodeWriter
from loader import PackLoader
from loader.fetch.fetcher import WINDOW_PACKS
from loader.materialized.materialize import materialize
from packing.extend_plan import extend_plan
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.mixture import Mixture
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


def test_repeats_padded_tails_and_grown_plans_are_equal(lake: Lake) -> None:
    videos = [scenes.coded_video(number, 17, gop=5) for number in range(4)]

    def write(numbers: range) -> None:
        with EpisodeWriter(lake) as writer:
            for number in numbers:
                cameras = {"top": videos[number]}
                embodiment = f"arm-{number % 2}"
                writer.add(make_episode(number, steps=17, cameras=cameras, embodiment=embodiment))
        lake.refresh()

    write(range(3))
    plan = make_plan(
        lake,
        spans=WindowSpans(horizon=6, tail="pad"),
        layout=TokenLayout(image_tokens=4),
        budget_tokens=256,
        slots_per_step=2,
        mixture=Mixture(over="embodiment", weights={"arm-0": 1, "arm-1": 4}),
    )
    assert any(max(counts) > 0 for counts in plan.packs["occurrence"].to_pylist() if counts)
    save_plan(lake, plan)
    write(range(3, 4))
    grown = extend_plan(lake, plan)
    save_plan(lake, grown)
    for each in (plan, grown):
        target = materialize(lake, each, workers=0)
        assert _batches(lake, each, materialized=True) == _batches(lake, each)
        assert target.packs == each.packs.num_rows


def test_a_span_may_cross_steps_without_a_state(lake: Lake) -> None:
    valid = np.ones(14, np.bool_)
    valid[[4, 5, 9]] = False
    episode = make_episode(0, steps=14, cameras={"top": scenes.coded_video(0, 14)})
    state = np.where(valid[:, None], episode.features["state"], np.nan).astype(np.float32)
    features = {**episode.features, "state": state}
    with EpisodeWriter(lake) as writer:
        writer.add(dataclasses.replace(episode, features=features, valid={"state": valid}))
    lake.refresh()
    plan = scenes.scene_plan(lake, spans=TrajectorySpans(max_steps=7, across_gaps=True))
    save_plan(lake, plan)
    materialize(lake, plan, workers=0)
    assert _batches(lake, plan, materialized=True) == _batches(lake, plan)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with a materialised plan, whose episodes are gone: nothing else can be read."""
    lake = scenes.scene_lake(tmp_path_factory.mktemp("written"))
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "mix")
    materialize(lake, plan, workers=0, chunk_packs=10)
    shutil.rmtree(Path(lake.uri) / "trajectories.lance")
    return open_lake(lake.uri)


@pytest.fixture(scope="module")
def reference(scene: Lake) -> list[str]:
    return _batches(scene, scenes.scene_plan(scene))


@pytest.mark.parametrize(
    "options",
    [
        {"process": "inline"},
        {"process": "inline", "buffer_bytes": 1 << 20},
        {"process": "child"},
        {"process": "child", "num_workers": 3, "buffer_bytes": 3 << 20},
    ],
    ids=str,
)
def test_every_process_mode_reads_packs_and_nothing_else(
    written: Lake, reference: list[str], options: dict[str, Any]
) -> None:
    with PackLoader(written, "mix", framework="numpy", materialized=True, **options) as loader:
        assert [scenes.digest(batch) for batch in loader] == reference
        counts = loader.metrics.counts
    assert counts["wanted_frames"] >= counts["decoded_frames"] > 0
    assert counts["reused_frames"] > 0


@pytest.mark.parametrize("world_size", [2, 3])
def test_every_world_size_reads_its_packs(
    written: Lake, reference: list[str], world_size: int
) -> None:
    found: dict[tuple[int, int], str] = {}
    for rank in range(world_size):
        with PackLoader(written, "mix", rank, world_size, **_INLINE, materialized=True) as loader:
            found |= {(b.step, b.slot): scenes.digest(b) for b in loader if b.slot < 3}
    assert [found[key] for key in sorted(found)] == reference


def test_a_position_goes_on_with_either_source(
    scene: Lake, written: Lake, reference: list[str]
) -> None:
    """In the middle of an epoch, and back, also with another world size."""
    found: list[str] = []
    state: dict[str, Any] | None = None
    plan = scenes.scene_plan(scene)
    for number, stop in enumerate((2, 5, 6, plan.num_steps)):
        lake = written if number % 2 else scene
        loader = PackLoader(lake, plan, **_INLINE, materialized=bool(number % 2))
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            found.append(scenes.digest(batch))
            if loader.next_step == stop:
                break
        state = loader.state_dict()
        loader.close()
    assert found == reference


def test_a_loader_is_sent_to_another_process_with_its_source(
    written: Lake, reference: list[str]
) -> None:
    loader = PackLoader(written, "mix", **_INLINE, materialized=True)
    with pickle.loads(pickle.dumps(loader)) as there:
        assert there.source == "materialized copy"
        assert scenes.digest(next(iter(there))) == reference[0]


def test_a_window_of_packs_is_one_read(written: Lake) -> None:
    with PackLoader(written, "mix", **_INLINE, materialized=True) as loader:
        packs = len(list(loader))
        requests = loader.metrics.counts["requests"]
    assert requests == 1 + -(-packs // WINDOW_PACKS)  # their sizes, then their bytes
