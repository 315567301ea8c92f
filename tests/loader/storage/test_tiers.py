"""Rows and ranges through a cache: the lake's own bytes, in few requests, whatever is cached."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake import Lake, create_lake
from lake.errors import EpisodeNotFoundError, LakeError
from lake.read import signal_columns
from lake.read_video import INDEX_COLUMNS, ByteRange, read_ranges
from lake.take import take_rows
from lake.writer import EpisodeWriter
from loader.fetch.plan_rows import PlanRows
from loader.observe.metrics import LoaderMetrics
from loader.storage.cache_folder import ENTRIES, cache_folder
from loader.storage.cached_blocks import blob_of
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.plan import Plan
from tests.loader import scenes

BLOCK = 1000  # small, so that the small videos of the scene have many


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loader.storage.cached_blocks.BLOCK_BYTES", BLOCK)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of the lake itself: ranges, or addresses of rows."""
    calls: list[Any] = []

    def ranges(lake: Lake, wanted: Sequence[ByteRange]) -> list[bytes]:
        calls.append(list(wanted))
        return read_ranges(lake, wanted)

    def rows(lake: Lake, addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
        calls.append(list(addresses))
        return take_rows(lake, addresses, columns)

    monkeypatch.setattr("loader.storage.tiers.read_ranges", ranges)
    monkeypatch.setattr("loader.storage.tiers.take_rows", rows)
    return calls


@pytest.fixture
def tiers(scene: Lake, plan: Plan, tmp_path: Path) -> Iterator[Tiers]:
    with _tiers(scene, plan, tmp_path) as tiers:
        yield tiers


def _tiers(lake: Lake, plan: Plan, folder: Path | None) -> Tiers:
    settings = StorageSettings(cache_dir=None if folder is None else str(folder))
    pinned = lake.at(plan.header.versions)
    return Tiers(pinned, PlanRows(plan).content_key, settings, LoaderMetrics())


def _addresses(plan: Plan) -> list[int]:
    return [int(address) for address in plan.episodes["address"].to_pylist()]


def _sizes(lake: Lake, plan: Plan) -> dict[int, int]:
    """Address -> bytes of video."""
    addresses = _addresses(plan)
    rows = take_rows(lake, addresses, ["camera_bytes"])["camera_bytes"].to_pylist()
    return {address: sum(sizes) for address, sizes in zip(addresses, rows, strict=True)}


def _some_ranges(lake: Lake, plan: Plan, seed: int) -> list[ByteRange]:
    """Random ones, and those at every edge: empty, whole blobs, around block boundaries."""
    rng = random.Random(seed)
    found = []
    for address, size in _sizes(lake, plan).items():
        edges = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, size - 1, size]
        edges = sorted({min(max(edge, 0), size) for edge in edges})
        found += [
            ByteRange(address, start, stop - start)
            for number, start in enumerate(edges)
            for stop in edges[number:]
        ]
        for _ in range(20):
            start = rng.randint(0, size)
            found.append(ByteRange(address, start, rng.randint(0, size - start)))
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("past_caches", [False, True])
def test_ranges_are_those_of_the_lake(
    scene: Lake,
    plan: Plan,
    tiers: Tiers,
    past_caches: bool,  # noqa: FBT001
) -> None:
    for seed in range(3):
        wanted = _some_ranges(scene, plan, seed)
        expected = read_ranges(scene, wanted)
        assert tiers.ranges(wanted, past_caches=past_caches) == expected
        assert tiers.ranges(wanted[:5]) == expected[:5]
    assert tiers.ranges([]) == []


def test_missing_blocks_are_few_ranges_in_one_call(
    scene: Lake, plan: Plan, tiers: Tiers, asked: list[Any]
) -> None:
    address = max(_sizes(scene, plan), key=lambda at: _sizes(scene, plan)[at])
    size = _sizes(scene, plan)[address]
    assert size > 8 * BLOCK
    tiers.rows([address], INDEX_COLUMNS)  # from which the blob's size is known
    asked.clear()
    tiers.ranges([ByteRange(address, 1500, 10), ByteRange(address, 2500, 10)])
    tiers.ranges([ByteRange(address, 0, 6100), ByteRange(address, size - 5, 5)])
    last = size // BLOCK * BLOCK
    assert asked == [
        [ByteRange(address, 1000, 2000)],
        [
            ByteRange(address, 0, 1000),
            ByteRange(address, 3000, 4000),
            ByteRange(address, last, size - last),
        ],
    ]
    counts = tiers._metrics.counts
    assert (counts["cache_hits"], counts["cache_misses"]) == (2, 2 + 6 + 1)
    assert counts["cache_bytes"] == 2000


def test_the_size_of_a_blob_is_looked_up_where_it_is_not_known(
    scene: Lake, plan: Plan, tiers: Tiers, asked: list[Any]
) -> None:
    addresses = [address for address, size in _sizes(scene, plan).items() if size][:2]
    for _ in range(2):
        tiers.ranges([ByteRange(address, 0, 10) for address in addresses])
    assert asked == [sorted(addresses), [ByteRange(a, 0, BLOCK) for a in sorted(addresses)]]


def test_nothing_is_rounded_without_a_cache(scene: Lake, plan: Plan, asked: list[Any]) -> None:
    wanted = _some_ranges(scene, plan, 1)
    with _tiers(scene, plan, None) as tiers:
        assert tiers.ranges(wanted) == read_ranges(scene, wanted)
        tiers.rows([0], ["episode_id"])
    assert asked == [wanted, [0]]
    assert not tiers._metrics.counts


def test_a_range_past_the_end_is_an_error_that_caches_nothing(
    scene: Lake, plan: Plan, tiers: Tiers, tmp_path: Path
) -> None:
    address, size = next(iter(_sizes(scene, plan).items()))
    tiers.ranges([ByteRange(address, 0, 1)])
    before = len(list((cache_folder(tmp_path) / ENTRIES).rglob("*")))
    with pytest.raises(LakeError, match="blob size"):
        tiers.ranges([ByteRange(address, size - 1, 2)])
    assert len(list((cache_folder(tmp_path) / ENTRIES).rglob("*"))) == before


def test_rows_are_those_of_the_lake(
    scene: Lake, plan: Plan, tiers: Tiers, asked: list[Any]
) -> None:
    columns = [*signal_columns(scene), *INDEX_COLUMNS, "content_sha256"]
    everything = _addresses(plan)
    rng = random.Random(2)
    for addresses in (everything[:2], everything, rng.choices(everything, k=20), []):
        for past_caches in (False, True):
            found = tiers.rows(addresses, columns, past_caches=past_caches)
            assert _same(found, take_rows(scene, addresses, columns))
    assert asked[0] == everything[:2]
    assert sorted(asked[2]) == sorted(everything[2:])  # asked[1] was read past the cache
    asked.clear()
    again = tiers.rows(everything, columns)
    assert _same(again, take_rows(scene, everything, columns))
    assert not asked


def test_columns_are_cached_by_themselves(
    scene: Lake, plan: Plan, tiers: Tiers, asked: list[Any]
) -> None:
    (address, *_) = _addresses(plan)
    for columns in (["episode_id"], ["episode_id", "num_steps"], ["num_steps", "episode_id"]):
        assert tiers.rows([address], columns).schema.names == columns
        assert _same(tiers.rows([address], columns), take_rows(scene, [address], columns))
    assert len(asked) == 3


@pytest.mark.parametrize("address", [5 << 32, 1000])
def test_rows_that_are_not_there_are_named(tiers: Tiers, address: int) -> None:
    for _ in range(2):
        with pytest.raises(EpisodeNotFoundError, match=f"no row at address {address}"):
            tiers.rows([0, address], ["episode_id"])


def test_episodes_that_share_their_content_have_rows_of_their_own(tmp_path: Path) -> None:
    """Two lakes on one node, of the same recordings under other ids."""
    found = []
    for name, prefix in (("a", ""), ("b", "again-")):
        lake = create_lake(tmp_path / f"{name}.lake")
        with EpisodeWriter(lake) as writer:
            episode = scenes.scene_episode(1)
            key = prefix + episode.ingest_key
            object.__setattr__(episode, "episode_id", prefix + episode.episode_id)
            object.__setattr__(episode, "ingest_key", key)
            writer.add(episode)
            scenes.scene_episode.cache_clear()
        lake.refresh()
        own = scenes.scene_plan(lake)
        with _tiers(lake, own, tmp_path / "cache") as tiers:
            (address,) = _addresses(own)
            for _ in range(2):
                rows = tiers.rows([address], ["episode_id", *INDEX_COLUMNS[1:]])
                assert rows["episode_id"][0].as_py() == own.episodes["episode_id"][0].as_py()
            tiers.ranges([ByteRange(address, 0, 1500)])
            found.append(dict(tiers._metrics.counts))
    assert found[0]["cache_misses"] == 1 + 2
    # The second lake has rows of its own, and the same video.
    assert found[1]["cache_misses"] == 1
    assert found[1]["cache_hits"] == 1 + 2


def test_a_blob_is_named_by_content_and_order_of_cameras() -> None:
    content = bytes(32)
    blobs = [
        blob_of(content, ["a", "b"], [1, 2]),
        blob_of(content, ["b", "a"], [2, 1]),
        blob_of(content, ["a", "b"], [2, 1]),
        blob_of(bytes([1] * 32), ["a", "b"], [1, 2]),
    ]
    assert len({blob.name for blob in blobs}) == 4
    assert {blob.size for blob in blobs} == {3}


def test_reading_past_the_caches_mends_them(
    scene: Lake, plan: Plan, tiers: Tiers, asked: list[Any]
) -> None:
    """What is cached under a right checksum and yet is wrong: as from a disk of another lake."""
    wanted = [ByteRange(address, 0, min(size, 10)) for address, size in _sizes(scene, plan).items()]
    expected = read_ranges(scene, wanted)
    tiers.ranges(wanted)
    assert tiers._cache is not None
    put = tiers._cache.put
    for path in (cache_folder(tiers._cache._folder.parent) / ENTRIES).rglob("??*"):
        if path.is_file():
            put(path.parent.name + path.name, b"\xff" * 1000)
    blobs = dict(tiers._blobs)
    assert tiers.ranges([w for w in wanted if w.length]) != [d for d in expected if d]
    tiers._blobs.update(blobs)
    assert tiers.ranges(wanted, past_caches=True) == expected
    assert tiers._metrics.counts["reread_bytes"] == sum(w.length for w in wanted)
    asked.clear()
    assert tiers.ranges(wanted) == expected
    assert not asked


def _same(found: pa.Table, expected: pa.Table) -> bool:
    """Equal, NaN included; compared as values, and single-chunk."""
    assert found.schema == expected.schema
    assert all(column.num_chunks <= 1 for column in found.columns)
    return repr(found.to_pylist()) == repr(expected.to_pylist())
