"""Metadata that reached Lance damaged, and that it keeps: read anew from the lake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lake import Lake, open_lake
from lake.errors import LakeError
from lake.read_video import ByteRange, read_ranges
from loader.fetch.plan_rows import PlanRows
from loader.materialized.materialize import materialize
from loader.materialized.pack_set import MaterializedSet
from loader.observe.metrics import LoaderMetrics
from loader.storage.pack_tiers import PackTiers
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

# Bytes from the end of a data file: the footer, where columns lie, and where their pages lie, which
# Lance keeps though reading by them fails.
_PLACES = (1, 8, 15, 22, 36, 50, 64, 400, 1000, *range(2130, 2195, 5))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("kept")))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    return scenes.scene_plan(lake, epochs=1)


def _damage(file: Path, back: int) -> Callable[[], None]:
    """Flip a bit; what is given back puts it right."""
    sound = file.read_bytes()
    damaged = bytearray(sound)
    damaged[-back] ^= 0x10
    file.write_bytes(damaged)
    return lambda: (file.write_bytes(sound), None)[1]


def _data_file(folder: str) -> Path:
    (file,) = Path(folder, "data").glob("*.lance")
    return file


def _before(first: Callable[[], None], then: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        first()
        then()

    return both


def _tiers(lake: Lake, plan: Plan) -> Tiers:
    pinned = open_lake(lake.uri).at(plan.header.versions)
    return Tiers(pinned, PlanRows(plan).content_key, StorageSettings(), LoaderMetrics())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_was_damaged_on_its_way_is_read_anew(lake: Lake, plan: Plan) -> None:
    address = int(plan.episodes["address"][0].as_py())
    wanted = [ByteRange(address, 0, 100)]
    expected = read_ranges(lake, wanted)
    file, retries, kept = _data_file(lake.table_uri("trajectories")), 0, 0
    for back in _PLACES:
        with _tiers(lake, plan) as tiers:
            repair = _damage(file, back)
            try:
                tiers._origin._reopen = _before(repair, tiers.lake.reopen)
                assert tiers.ranges(wanted) == expected, back
            finally:
                repair()
            retries += tiers._metrics.counts["retries"]

        handle = open_lake(lake.uri).at(plan.header.versions)
        repair = _damage(file, back)
        try:
            _reads(handle, wanted)
        finally:
            repair()
        kept += not _reads(handle, wanted)  # though the file is right again
        handle.reopen()
        assert read_ranges(handle, wanted) == expected
    assert retries > len(_PLACES) // 2
    assert kept


def test_reading_past_the_caches_is_past_those_of_lance(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = int(plan.episodes["address"][0].as_py())
    with _tiers(lake, plan) as tiers:
        sessions: set[int] = set()
        held: list[Any] = []  # so that no identity is given twice
        opened = tiers.lake.open_dataset

        def open_dataset(uri: str, **arguments: Any) -> Any:
            held.append(arguments["session"])
            sessions.add(id(arguments["session"]))
            return opened(uri, **arguments)

        monkeypatch.setattr(tiers.lake, "open_dataset", open_dataset)
        for past_caches in (False, False, True, True):
            tiers.ranges([ByteRange(address, 0, 10)], past_caches=past_caches)
        assert len(sessions) == 3
        tiers.rows([address], ["episode_id"])
        assert len(sessions) == 3
        tiers.rows([address], ["episode_id"], past_caches=True)
        assert len(sessions) == 4


def test_materialised_packs_are_read_anew_too(lake: Lake, plan: Plan) -> None:
    save_plan(lake, plan, "mix")
    materialize(lake, plan, workers=0)
    packs = MaterializedSet.open(open_lake(lake.uri), plan.header, "copy")
    columns = ("pack", "data", "checksum")
    expected = packs.take([0], columns)
    file = _data_file(packs.uri)
    for back in (1, 15, 36, *range(200, 900, 100)):
        opened = MaterializedSet.open(open_lake(lake.uri), plan.header, "copy")
        with PackTiers(opened, StorageSettings(), LoaderMetrics()) as tiers:
            repair = _damage(file, back)
            try:
                tiers._origin._reopen = _before(repair, opened.reopen)
                assert tiers.take([0], columns) == expected
                repair()
                assert tiers.take([0], columns, past_caches=True) == expected
            finally:
                repair()


def _reads(lake: Lake, wanted: list[ByteRange]) -> bool:
    try:
        read_ranges(lake, wanted)
    except LakeError:
        return False
    return True
