"""Episodes of coming packs: read once, held while needed, bounded."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lake import Lake
from lake.errors import EpisodeNotFoundError, LakeError
from loader.cursor import Cursor, Place
from loader.fetch.episode_cache import EpisodeCache
from loader.fetch.episodes import EpisodeReader
from loader.fetch.fetcher import WINDOW_PACKS, Fetcher, FetchLimits
from loader.fetch.plan_rows import PackRow, PlanRows
from loader.observe.metrics import LoaderMetrics
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


def _pack(episodes: list[int]) -> PackRow:
    empty = np.empty(0, np.int32)
    columns = dict.fromkeys(
        ("occurrence", "start", "stop", "stride", "action_start", "action_stop", "text", "images"),
        empty,
    )
    place = Place(position=0, step=0, slot=0, last_of_step=True)
    return PackRow(
        place=place,
        pack=0,
        epoch=0,
        span_id=np.arange(len(episodes)),
        episode=np.array(episodes, np.int32),
        prefix_tokens=empty,
        **columns,
    )


def test_held_episodes_are_read_once_and_counted_once(scene: Lake, plan: Plan) -> None:
    cache = _cache(scene, plan, 1)
    first, second = _pack([0, 1, 0]), _pack([2, 0])
    assert cache.request([first, first]) == [0, 1]
    full = [cache.full]  # by what the plan expects
    assert cache.request([second]) == [2]
    for missing in ([0, 1], [2]):
        cache.add(cache.read(missing))
    ours = cache.of(first)
    for pack in (first, first, second):
        assert cache.of(second)[0] is ours[0]
        full.append(cache.full)
        cache.let_go(pack)
    assert [*full, cache.full] == [True, True, True, True, False]
    assert cache.request([_pack([3])]) == [3]
    cache.add(cache.read([3]))
    assert cache.request([_pack([0])]) == [0]


def test_an_episode_asked_for_twice_comes_with_the_first_request(scene: Lake, plan: Plan) -> None:
    cache = _cache(scene, plan, 1 << 30)
    assert cache.request([_pack([5, 1]), _pack([1, 2])]) == [5, 1, 2]
    assert cache.request([_pack([2, 3, 5])]) == [3]
    first, second = cache.read([5, 1, 2]), cache.read([3])
    cache.add(first)
    assert list(cache.of(_pack([1, 5]))) == [1, 5]
    cache.add(second)
    ours = cache.of(_pack([2, 3, 5]))
    assert [ours[e] for e in (2, 5)] == [first[2], first[5]]
    assert ours[3] is second[3]


def test_the_least_recently_asked_for_are_dropped(scene: Lake, plan: Plan) -> None:
    sizes = {e: data.nbytes for e, data in _cache(scene, plan, 1).read(range(EPISODES)).items()}
    cache = _cache(scene, plan, sizes[1] + sizes[2] + sizes[3])
    for episodes in ([1], [2], [1], [3], [0]):
        pack = _pack(episodes)
        cache.add(cache.read(cache.request([pack])))
        cache.let_go(pack)
    again = [cache.request([_pack([episode])]) for episode in (0, 3, 1, 2)]
    assert again[-1] == [2]
    assert again[:2] == [[], []]


def test_what_is_expected_of_an_episode_is_near_what_it_takes(scene: Lake, plan: Plan) -> None:
    cache = _cache(scene, plan, 1)
    cache.request([_pack(list(range(EPISODES)))])
    expected = {episode: cache._size(episode) for episode in range(EPISODES)}
    for episode, data in cache.read(range(EPISODES)).items():
        assert expected[episode] == pytest.approx(data.nbytes, rel=0.2)


def _most_ahead(scene: Lake, plan: Plan, episode_bytes: int) -> int:
    """The most packs known beyond those that are planned."""
    limits = FetchLimits(
        packet_bytes=1 << 20, kept_frame_bytes=1 << 20, episode_bytes=episode_bytes
    )
    cursor = Cursor(
        plan_hash=plan.plan_hash, num_steps=plan.num_steps, slots_per_step=1, rank=0, world_size=1
    )
    rows = PlanRows(plan)
    fetcher = Fetcher(_tiers(scene, plan, rows), rows, cursor, limits, LoaderMetrics())
    handed = most = 0
    for _ in fetcher.packs(cursor.blocks(0, WINDOW_PACKS)):
        handed += 1
        most = max(most, len(fetcher._coming))
    assert handed == plan.packs.num_rows
    return most


def test_the_look_ahead_ends_where_its_episodes_exceed_the_bound(scene: Lake, long: Plan) -> None:
    assert long.episodes.num_rows == EPISODES
    assert _most_ahead(scene, long, 1) < WINDOW_PACKS
    assert _most_ahead(scene, long, 1 << 30) >= WINDOW_PACKS


def test_specs_and_the_table_are_read_as_patiently_as_rows(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = PlanRows(plan)
    tiers = _tiers(scene, plan, rows)
    reader, lake = EpisodeReader(tiers, rows), tiers.lake
    failed: list[str] = []

    def failing_once(name: str) -> None:
        right = getattr(lake, name)

        def call(what: str) -> object:
            if name not in failed:
                failed.append(name)
                raise LakeError(f"{lake.uri}: {name}: damaged on its way")
            return right(what)

        monkeypatch.setattr(lake, name, call)

    failing_once("spec")
    assert set(reader.read([3])) == {3}
    failing_once("dataset")
    assert set(reader.read([0, 1, 2])) == {0, 1, 2}
    assert sorted(failed) == ["dataset", "spec"]
    assert tiers._metrics.counts["retries"] == 2
    tiers.close()


def test_a_row_that_comes_back_is_not_called_gone(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error stays that of the read, and names no episode that is there."""
    rows = PlanRows(plan)
    tiers = _tiers(scene, plan, rows)
    right, gone = tiers.rows, EpisodeNotFoundError("no row at address 7")

    def take(addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
        if len(columns) > 1:
            raise gone
        return right(addresses, columns)

    monkeypatch.setattr(tiers, "rows", take)
    with pytest.raises(EpisodeNotFoundError) as error:
        EpisodeReader(tiers, rows).read([0, 1])
    assert error.value.__cause__ is gone
    assert "now 0 of the 2 episodes are gone" in str(error.value)
    tiers.close()
