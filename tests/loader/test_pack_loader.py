"""PackLoader's face: arguments, position, errors, metrics."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lake import Lake, create_lake
from lake.errors import EpisodeNotFoundError, LakeError
from lake.writer import EpisodeWriter
from loader import LoaderError, LoaderStateError, PackLoader
from loader.errors import BadDataError
from loader.pack_loader import Process
from packing.errors import PlanError
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.trajectory_spans import TrajectorySpans
from tests.loader import scenes
from tests.loader.scenes import digest, scene_plan

_INLINE: dict[str, Any] = {"process": "inline", "framework": "numpy"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"process": "thread"}, "process='thread': use one of child, inline"),
        ({"framework": "jax"}, "framework='jax'"),
        ({"image_format": "bgr"}, "image_format='bgr'"),
        ({"process": "inline", "num_workers": 2}, "num_workers=2"),
        ({"num_workers": 0}, "num_workers=0"),
        ({"decode_threads": 0}, "decode_threads=0"),
        ({"decode_threads": 2, "decode_device": "cpu"}, "decode_device='cpu': at least 1"),
        ({"buffer_bytes": 1000}, "at least 1048576"),
        ({"image_size": (0, 4)}, "image_size"),
        ({"log_every_s": 0.0}, "log_every_s=0.0: seconds, more than 0"),
        ({"log_every_s": float("nan")}, "log_every_s=nan"),
        ({"image_size": 224}, r"image_size=224: \(height, width\)"),
        ({"image_size": (224, 224, 3)}, "image_size"),
        ({"rank": 1}, "rank 1 of world size 1"),
        ({"world_size": 4}, "3 slots"),
    ],
)
def test_an_unusable_argument_is_refused_at_once(
    scene: Lake, plan: Plan, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(LoaderError, match=message):
        PackLoader(scene, plan, **options)


def test_a_plan_by_name_and_a_lake_by_uri(tmp_path: Path) -> None:
    lake = scenes.scene_lake(tmp_path)
    made = scene_plan(lake, epochs=1)
    save_plan(lake, made, "mix")
    with PackLoader(lake.uri, "mix", **_INLINE) as loader:
        by_name = [digest(batch) for batch in loader]
    with PackLoader(lake, made, **_INLINE) as loader:
        assert [digest(batch) for batch in loader] == by_name
    with pytest.raises(PlanError, match="no plan 'mox'"):
        PackLoader(lake, "mox")


def test_the_position_moves_with_the_last_pack_of_a_step(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, **_INLINE) as loader:
        assert loader.packs_per_step == 3
        stream = iter(loader)
        seen = []
        for _ in range(7):
            next(stream)
            seen.append(loader.state_dict()["next_step"])
    assert seen == [0, 0, 1, 1, 1, 2, 2]


def test_resuming_anywhere_gives_the_rest(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, **_INLINE) as loader:
        whole = [(batch.step, digest(batch)) for batch in loader]
        assert loader.next_step == loader.num_steps
        assert list(loader) == []  # the plan has ended, and stays ended
        for step in (0, 1, loader.num_steps - 1, loader.num_steps):
            loader.load_state_dict({**loader.state_dict(), "next_step": step})
            assert [(b.step, digest(b)) for b in loader] == [w for w in whole if w[0] >= step]


def test_a_state_of_another_plan_is_refused_and_changes_nothing(scene: Lake, plan: Plan) -> None:
    other = PackLoader(scene, scene_plan(scene, seed=5), **_INLINE)
    with PackLoader(scene, plan, **_INLINE) as loader:
        next(iter(loader))
        with pytest.raises(LoaderStateError, match="load that plan"):
            loader.load_state_dict(other.state_dict())
        assert loader.next_step == 0


def test_a_new_iteration_ends_the_one_before(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, **_INLINE) as loader:
        first = iter(loader)
        kept = digest(next(first))
        second = iter(loader)
        assert list(first) == []
        assert digest(next(second)) == kept


def test_from_episodes_plans_in_memory(scene: Lake) -> None:
    with PackLoader.from_episodes(
        scene,
        "success and num_steps > 15",
        budget_tokens=512,
        spans=TrajectorySpans(),
        **_INLINE,
    ) as loader:
        batches = list(loader)
        ids = loader.plan.episodes["episode_id"].to_pylist()
    assert [name.split("-")[0] for name in ids] == [
        "synthetic/episode_000003",
        "synthetic/episode_000005",
    ]
    assert {e for batch in batches for e in batch.episode_ids.tolist() if e >= 0} == {0, 1}


def test_from_episodes_refuses_a_step_without_slots(scene: Lake) -> None:
    with pytest.raises(PlanError, match="slots_per_step must be at least 1, is 0"):
        PackLoader.from_episodes(scene, budget_tokens=256, slots_per_step=0, **_INLINE)


def test_from_episodes_takes_a_mixture(scene: Lake) -> None:
    mixture = Mixture(epoch_tokens=2_000, per="episode")
    with PackLoader.from_episodes(scene, budget_tokens=512, mixture=mixture, **_INLINE) as loader:
        spans = [batch.span_ids[: batch.num_spans] for batch in loader]
        (share,) = loader.plan.header.shares
    assert share.asked_tokens == 2_000
    assert sum(map(len, spans)) == share.planned


def test_yuv_is_what_the_decoder_gives(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, image_format="yuv", **_INLINE) as loader:
        batch = next(batch for batch in loader if len(batch.images) == 2)
    assert [bucket.shape[1:] for bucket in batch.images] == [(48, 48), (72, 64)]
    assert batch.image_format == "yuv"
    assert batch.images[0].std() > 10


def test_resized_pictures_share_a_bucket(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, image_size=(24, 32), **_INLINE) as loader:
        shapes = {tuple(bucket.shape[1:] for bucket in batch.images) for batch in loader}
    assert shapes == {((3, 24, 32),)}


def test_metrics_add_up(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, **_INLINE) as loader:
        batches = list(loader)
        metrics = loader.metrics
    assert metrics.packs == len(batches) == plan.packs.num_rows
    assert metrics.spans == sum(batch.num_spans for batch in batches)
    assert metrics.steps == sum(len(batch.state) for batch in batches)
    assert metrics.counts["wanted_frames"] == sum(len(b.image_span_ids) for b in batches)
    assert 0 < metrics.counts["decoded_frames"] <= metrics.counts["wanted_frames"]
    assert 0 < metrics.data_wait_share <= 1
    assert set(metrics.to_dict()["stage_s"]) == {"plan", "fetch", "decode", "assemble", "send"}


def test_a_plan_of_another_lake_is_refused(tmp_path: Path, plan: Plan) -> None:
    other = create_lake(tmp_path / "other.lake")
    with EpisodeWriter(other) as writer:
        for number in (6, 5, 4, 3, 2, 1, 0):
            writer.add(scenes.scene_episode(number))
    other.refresh()
    header = replace(plan.header, versions=scene_plan(other).header.versions)
    with (
        PackLoader(other, replace(plan, header=header), **_INLINE) as loader,
        pytest.raises(LoaderError, match="the plan was made of another lake"),
    ):
        list(loader)


def test_a_deleted_episode_is_named(tmp_path: Path) -> None:
    lake = scenes.scene_lake(tmp_path)
    made = scene_plan(lake)
    gone = made.episodes["episode_id"][2].as_py()
    trajectories = lake.latest("trajectories")
    trajectories.delete(f"episode_id = '{gone}'")
    lake.refresh()
    # The pinned version still has it; a plan that pins the newer one does not.
    with PackLoader(lake, made, **_INLINE) as loader:
        assert len(list(loader)) == made.packs.num_rows
    later = replace(made.header, versions={**made.header.versions, **_now(lake)})
    with (
        PackLoader(lake, replace(made, header=later), **_INLINE) as loader,
        pytest.raises(EpisodeNotFoundError, match=f"episode {gone} is gone"),
    ):
        list(loader)


def test_a_version_that_is_gone_is_an_error_of_the_lake(scene: Lake, plan: Plan) -> None:
    header = replace(plan.header, versions={**plan.header.versions, "trajectories": 999})
    with (
        PackLoader(scene, replace(plan, header=header), **_INLINE) as loader,
        pytest.raises(LakeError),
    ):
        next(iter(loader))


@pytest.mark.parametrize("process", ["inline", "child"])
def test_flipped_video_bytes_are_named_not_shown(tmp_path: Path, process: Process) -> None:
    lake = scenes.scene_lake(tmp_path)
    made = scene_plan(lake, epochs=1)
    payload = bytes(scenes.scene_episode(5).cameras["top"].payload)
    _flip(Path(lake.uri) / "trajectories.lance", payload[-60:])
    with (
        PackLoader(lake.uri, made, process=process, framework="numpy") as loader,
        pytest.raises(
            BadDataError, match=r"span \d+ .*episode synthetic/episode_000005.*camera top.* doctor"
        ),
    ):
        list(loader)


def test_a_fork_is_told_not_to_read_the_lake(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = PackLoader(scene, plan, **_INLINE)
    monkeypatch.setattr("loader.pack_loader.os.getpid", lambda: 1)
    with pytest.raises(LoaderError, match="by spawn"):
        next(iter(loader))


def test_a_loader_is_sent_to_another_process_with_its_position(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, **_INLINE) as loader:
        next(batch for batch in loader if batch.step == 2)
        with pickle.loads(pickle.dumps(loader)) as there:
            assert there.state_dict() == loader.state_dict()
            assert next(iter(there)).step == 2


def _now(lake: Lake) -> dict[str, int]:
    return {"trajectories": lake.versions()["trajectories"]}


def _flip(table: Path, needle: bytes) -> None:
    """Flip one bit of every place in the table's files that holds `needle`."""
    flips = 0
    for file in table.rglob("*"):
        if file.is_file() and (at := (content := file.read_bytes()).find(needle)) >= 0:
            damaged = bytearray(content)
            damaged[at + 30] ^= 4
            file.write_bytes(damaged)
            flips += 1
    assert flips
