"""Episodes of coming packs: read once, held while needed, bounded."""

from collections.abc import Iterator

import pytest

from lake import Lake
from loader.cursor import Cursor
from loader.episodes import EpisodeCache
from loader.fetch import WINDOW_PACKS, Fetcher, FetchLimits
from loader.metrics import LoaderMetrics
from loader.plan_rows import PlanRows
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.plan import Plan
from tests.loader.scenes import EPISODES, scene_plan


@pytest.fixture(scope="module")
def long(scene: Lake) -> Plan:
    """Many packs whose runs stay open for the whole epoch."""
    return scene_plan(scene, budget_tokens=128, slots_per_step=1, epochs=4)


def _cache(scene: Lake, plan: Plan, limit_bytes: int) -> EpisodeCache:
    rows = PlanRows(plan)
    return EpisodeCache(
        _tiers(scene, plan, rows), rows, limit_bytes=limit_bytes, metrics=LoaderMetrics()
    )


def _tiers(scene: Lake, plan: Plan, rows: PlanRows) -> Tiers:
    pinned = scene.at(plan.header.versions)
    return Tiers(pinned, rows.content_key, StorageSettings(), LoaderMetrics())


def test_held_episodes_are_read_once_and_counted_once(scene: Lake, plan: Plan) -> None:
    cache = _cache(scene, plan, 1)
    first = cache.load([0, 1])
    full = [cache.full]
    for change in (cache.hold, cache.hold, cache.let_go, cache.let_go):
        change(first)
        full.append(cache.full)
        assert cache.load([2, 0])[0] is first[0]
    assert full == [False, True, True, True, False]
    cache.load([3])
    assert cache.load([0])[0] is not first[0]


def _most_ahead(scene: Lake, plan: Plan, episode_bytes: int) -> int:
    """The most packs known beyond the one that is handed out."""
    limits = FetchLimits(
        packet_bytes=1 << 20, kept_frame_bytes=1 << 20, episode_bytes=episode_bytes
    )
    cursor = Cursor(
        plan_hash=plan.plan_hash, num_steps=plan.num_steps, slots_per_step=1, rank=0, world_size=1
    )
    rows = PlanRows(plan)
    fetcher = Fetcher(_tiers(scene, plan, rows), rows, cursor, limits, LoaderMetrics())
    known = handed = most = 0

    def blocks() -> Iterator[range]:
        nonlocal known
        for block in cursor.blocks(0, WINDOW_PACKS):
            known += len(block)
            yield block

    for _ in fetcher.packs(blocks()):
        handed += 1
        most = max(most, known - handed)
    assert handed == plan.packs.num_rows
    return most


def test_the_look_ahead_ends_where_its_episodes_exceed_the_bound(scene: Lake, long: Plan) -> None:
    assert long.episodes.num_rows == EPISODES
    assert _most_ahead(scene, long, 1) < WINDOW_PACKS
    assert _most_ahead(scene, long, 1 << 30) >= WINDOW_PACKS
