"""Figures of whole plans: sampled as exact, for workers, memory and world sizes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lake import EpisodeWriter, Lake, create_lake
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_header import PlanHeader
from packing.plan_store import load_plan_header, save_plan
from packing.storage.facts import StorageFacts, read_storage_facts
from packing.storage.model import replay, with_storage
from packing.storage.packs import choose_packs
from packing.storage.use import Spread
from packing.window_spans import WindowSpans
from tests.episodes import make_episode

_STEPS = tuple(20 + 7 * number % 30 for number in range(12))


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Twelve episodes of two cameras, packets of noise, a key frame every five."""
    lake = create_lake(Path(tmp_path_factory.mktemp("filmed")) / "robots.lake")
    with EpisodeWriter(lake) as writer:
        for number, steps in enumerate(_STEPS):
            cameras = ("top", "wrist") if number % 2 else ("top",)
            writer.add(make_episode(number, steps=steps, camera_names=cameras))
    lake.refresh()
    return lake


@pytest.fixture(scope="module")
def plan(filmed: Lake) -> Plan:
    return make_plan(
        filmed,
        spans=WindowSpans(horizon=4),
        layout=TokenLayout(image_tokens=8),
        budget_tokens=128,
        slots_per_step=6,
        epochs=3,
    )


@pytest.fixture(scope="module")
def facts(filmed: Lake, plan: Plan) -> StorageFacts:
    return read_storage_facts(filmed, plan.header, plan.episodes)


def test_facts_are_those_of_the_lake(facts: StorageFacts, plan: Plan) -> None:
    number = [int(e.split("_")[1].split("-")[0]) for e in plan.episodes["episode_id"].to_pylist()]
    steps = [_STEPS[n] for n in number]
    assert facts.num_steps.tolist() == steps
    assert facts.frames.tolist() == [
        [s, s if n % 2 else 0] for n, s in zip(number, steps, strict=True)
    ]
    videos = [make_episode(n, steps=_STEPS[n], camera_names=("top", "wrist")) for n in number]
    for row, episode in enumerate(videos):
        top, wrist = (len(episode.cameras[name].payload) for name in ("top", "wrist"))
        assert facts.video_bytes[row].tolist() == [top, wrist if number[row] % 2 else 0]
        assert facts.video_offset[row].tolist() == [0, top if number[row] % 2 else 0]
        # A camera's index is its header (about 240 bytes), its packets and its steps.
        indexes = [len(episode.cameras["top"].index.to_bytes())]
        if number[row] % 2:
            indexes.append(len(episode.cameras["wrist"].index.to_bytes()))
        assert facts.index_bytes[row] == pytest.approx(sum(indexes), rel=0.05)
    assert facts.gop_frames[:, 0].tolist() == [5] * 12
    assert facts.frame_bytes[0, 0] == 64 * 48 * 3 // 2
    assert sorted(int(f[0]) // steps[0] for f in facts.feature_bytes) == [12, 16]
    # Noise of like sizes throughout: the n-th frame of a group needs n + 1 packets.
    assert facts.profiles[0].gop_frames == 5
    assert np.allclose(facts.profiles[0].frames_to, np.arange(1, 6), rtol=0.25)


def test_all_ranks_together_show_all_pictures(plan: Plan, facts: StorageFacts) -> None:
    pictures = sum(sum(images) for images in plan.packs["images"].to_pylist())
    for world in (1, 2, 4, 6):
        use = replay(plan, facts, world).use()
        assert use.rank_steps == world * plan.num_steps
        assert use.pictures * use.rank_steps == pytest.approx(pictures)
        assert use.fresh_pictures <= use.pictures
        assert use.decoded_frames >= use.fresh_pictures
        assert use.requests_per_step == pytest.approx(use.requests.mean * world)
        assert use.video_bytes < use.read_bytes.mean


def test_one_rank_reuses_more_than_six(plan: Plan, facts: StorageFacts) -> None:
    one, six = (replay(plan, facts, world).use() for world in (1, 6))
    assert one.bytes_per_step < six.bytes_per_step
    assert one.requests_per_step < six.requests_per_step
    assert one.decoded_over_shown < six.decoded_over_shown


def test_little_memory_costs_bytes_and_is_kept_to(plan: Plan, facts: StorageFacts) -> None:
    wide = replay(plan, facts, 1).use()
    narrow = replay(plan, facts, 1, buffer_bytes=1 << 20).use()
    assert wide.kept_bytes > 2 * (1 << 20) // 8 >= narrow.kept_bytes
    assert narrow.read_bytes.mean > 1.2 * wide.read_bytes.mean


def test_workers_share_the_packs_and_not_the_memory(plan: Plan, facts: StorageFacts) -> None:
    packs = choose_packs(plan, 2, 2, 1 << 30)
    assert len(packs.row) == plan.packs.num_rows
    assert sorted(packs.row.tolist()) == list(range(plan.packs.num_rows))
    first = packs.row[packs.reader == 0]
    # Rank 0 takes slots 0, 2, 4 of each step; its first worker blocks 0, 2, ... of 8 packs.
    ours = [step * 6 + slot for step in range(plan.num_steps) for slot in (0, 2, 4)]
    assert first.tolist() == [row for n, row in enumerate(ours) if n // 8 % 2 == 0]
    alone, shared = (replay(plan, facts, 2, num_workers=n).use() for n in (1, 2))
    assert shared.video_bytes > alone.video_bytes
    assert shared.pictures == pytest.approx(alone.pictures)


def test_a_sample_tells_what_the_whole_tells(filmed: Lake) -> None:
    plan = make_plan(
        filmed,
        spans=WindowSpans(horizon=4),
        layout=TokenLayout(image_tokens=8),
        budget_tokens=128,
        slots_per_step=2,
        epochs=20,
        open_runs=4,
    )
    facts = read_storage_facts(filmed, plan.header, plan.episodes)
    pictures = sum(sum(images) for images in plan.packs["images"].to_pylist())
    for world in (1, 2):
        whole = replay(plan, facts, world).use()
        sample = replay(plan, facts, world, most_pictures=pictures // 2).use()
        assert sample.rank_steps < whole.rank_steps
        assert sample.pictures == pytest.approx(whole.pictures, rel=0.05)
        assert sample.video_bytes == pytest.approx(whole.video_bytes, rel=0.1)
        assert sample.decoded_frames == pytest.approx(whole.decoded_frames, rel=0.1)
        assert sample.requests.mean == pytest.approx(whole.requests.mean, rel=0.15)
        assert sample.read_bytes.mean == pytest.approx(whole.read_bytes.mean, rel=0.15)


def test_a_plan_without_pictures(ten: Lake) -> None:
    plan = make_plan(
        ten,
        spans=WindowSpans(horizon=4),
        layout=TokenLayout(image_tokens=0),
        budget_tokens=128,
        slots_per_step=2,
    )
    for use in plan.header.quality.storage:
        assert (use.video_bytes, use.pictures, use.decoded_over_shown) == (0, 0, 0)
        assert use.requests.mean > 0


def test_more_ranks_than_slots(plan: Plan, facts: StorageFacts) -> None:
    with pytest.raises(PlanError, match="world size 7: the plan's steps have 6 slots"):
        replay(plan, facts, 7)


def test_figures_are_kept_with_the_plan_and_outside_its_hash(filmed: Lake, plan: Plan) -> None:
    assert [use.world_size for use in plan.header.quality.storage] == [1, 6]
    other = with_storage(filmed, plan, (2, 3))
    assert [use.world_size for use in other.header.quality.storage] == [2, 3]
    assert other.content_hash() == plan.plan_hash
    save_plan(filmed, plan, "mix")
    assert load_plan_header(filmed, "mix").quality == plan.header.quality
    bare = replace(plan.header.newest, quality=replace(plan.header.quality, storage=()))
    header = replace(plan.header, segments=(bare,))
    assert PlanHeader.from_json(header.to_json()).quality.storage == ()


def test_spread() -> None:
    spread = Spread.of(np.arange(100))
    assert (spread.mean, spread.p95, spread.max) == (49.5, 94.0, 99.0)


def test_gone_episodes_are_named(plan: Plan, tmp_path: Path) -> None:
    other = create_lake(tmp_path / "other.lake")
    header = replace(plan.header, versions=other.versions())
    with pytest.raises(
        PlanError,
        match=r"12 episodes of the plan are not there, first synthetic/.* made of another lake",
    ):
        read_storage_facts(other, header, plan.episodes)
