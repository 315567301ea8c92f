"""Materialised packs through a cache: the set's own rows, whatever is cached."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake import Lake
from loader import PackLoader
from loader.materialized.materialize import materialize
from loader.materialized.pack_set import SCHEMA, MaterializedSet
from loader.observe.metrics import LoaderMetrics
from loader.storage.cache_folder import ENTRIES, cache_folder
from loader.storage.pack_tiers import PackTiers
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_COLUMNS = ("pack", "data", "checksum")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("packs")))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "mix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loader.materialized.chunk._FILE_BYTES", 20_000)  # several files
        materialize(lake, plan, workers=0)
    return plan


@pytest.fixture(scope="module")
def packs(lake: Lake, plan: Plan) -> MaterializedSet:
    packs = MaterializedSet.open(lake, plan.header, "copy").require_complete()
    assert len(packs.dataset.get_fragments()) > 1
    return packs


def _tiers(packs: MaterializedSet, folder: Path) -> PackTiers:
    return PackTiers(packs, StorageSettings(cache_dir=str(folder)), LoaderMetrics())


def test_rows_are_those_of_the_set(packs: MaterializedSet, tmp_path: Path) -> None:
    everything = list(range(packs.num_packs))
    rng = random.Random(1)
    for past_caches in (False, False, True):
        with _tiers(packs, tmp_path) as tiers:
            for wanted in (everything, rng.choices(everything, k=9), everything[-1:]):
                found = tiers.take(wanted, _COLUMNS, past_caches=past_caches)
                assert found.equals(packs.take(wanted, _COLUMNS))
            counts = tiers._metrics.counts
            assert bool(counts["reread_bytes"]) == past_caches
    assert counts["cache_misses"] > 0


def test_the_second_reader_asks_the_lake_for_no_pack(
    packs: MaterializedSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _tiers(packs, tmp_path) as tiers:
        tiers.take(range(packs.num_packs), _COLUMNS)
        tiers.take(range(packs.num_packs), ["data_bytes"])

    def refused(*_: Any) -> pa.Table:
        raise AssertionError("the lake was asked")

    monkeypatch.setattr(packs, "take", refused)
    with _tiers(packs, tmp_path) as tiers:
        found = tiers.take(range(packs.num_packs), _COLUMNS)
        assert found["pack"].to_pylist() == list(range(packs.num_packs))
        assert tiers._metrics.counts["cache_hits"] == packs.num_packs
        with pytest.raises(AssertionError, match="was asked"):
            tiers.take([0], ["data_bytes"])  # sizes are not cached


def test_batches_are_equal_also_from_a_cache_that_holds_damaged_packs(
    lake: Lake, plan: Plan, packs: MaterializedSet, tmp_path: Path
) -> None:
    """As after a bit that flipped on the way from the store: sound for the cache, not for us."""
    storage = StorageSettings(cache_dir=str(tmp_path))

    def batches(**options: Any) -> tuple[list[str], dict[str, int]]:
        with PackLoader(
            lake, plan, process="inline", framework="numpy", materialized=True, **options
        ) as loader:
            return [scenes.digest(batch) for batch in loader], dict(loader.metrics.counts)

    expected, _ = batches()
    assert batches(storage=storage)[0] == expected
    with _tiers(packs, tmp_path) as tiers:
        assert tiers._cache is not None
        for path in (cache_folder(tmp_path) / ENTRIES).rglob("*"):
            if path.is_file():
                _damage_data(tiers._cache, path)
    found, counts = batches(storage=storage)
    assert found == expected
    assert counts["reread_bytes"] > 0
    found, counts = batches(storage=storage)
    assert found == expected
    assert "reread_bytes" not in counts


def _damage_data(cache: Any, path: Path) -> None:
    name = path.parent.name + path.name
    row = pa.ipc.open_stream(pa.py_buffer(cache.get(name))).read_all()
    data = bytearray(row["data"][0].as_py())
    data[len(data) // 2] ^= 1
    column = pa.chunked_array([pa.array([bytes(data)], pa.large_binary())])
    row = row.set_column(row.schema.get_field_index("data"), SCHEMA.field("data"), column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_table(row)
    cache.put(name, memoryview(sink.getvalue()))
