"""What a refresh reports, refuses and repairs."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from catalog import Catalog, CatalogError, catalog_path, refresh_catalog
from lake import Episode, Lake
from lake.errors import LakeError
from tests.catalog.views import contents, rebuilt_contents, write

MakeEpisode = Callable[..., Episode]


def test_an_up_to_date_catalog_is_left_alone(small_lake: Lake) -> None:
    first = refresh_catalog(small_lake)
    assert first.changed
    assert first.rebuilt == "there was none"
    before = first.path.stat()
    second = refresh_catalog(small_lake)
    assert (second.changed, second.rebuilt, second.rows_loaded) == (False, "", 0)
    assert second.versions == first.versions
    assert second.path.stat().st_ino == before.st_ino


def test_an_empty_lake_has_empty_tables(lake: Lake) -> None:
    with Catalog(lake) as catalog:
        assert all(rows == [] for rows in contents(catalog).values())


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "other-layout", "not-ours"])
def test_a_bad_file_is_rebuilt_from_the_lake(small_lake: Lake, tmp_path: Path, damage: str) -> None:
    path = refresh_catalog(small_lake).path
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "garbage":
        path.write_bytes(b"\xa5" * 20_000)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        if damage == "not-ours":
            path.unlink()
        with duckdb.connect(str(path)) as connection:
            if damage == "other-layout":
                connection.execute("UPDATE mirror.layout SET digest = 'older'")
            else:
                connection.execute("CREATE TABLE t (i INTEGER)")
    refresh = refresh_catalog(small_lake)
    assert refresh.rebuilt
    with Catalog(small_lake, refresh=False) as catalog:
        assert contents(catalog) == rebuilt_contents(small_lake, tmp_path / "again.duckdb")


def test_damage_behind_a_readable_header_is_rebuilt(
    small_lake: Lake, make_episode: MakeEpisode, tmp_path: Path
) -> None:
    # It attaches and its state reads well; only the transaction finds out.
    path = refresh_catalog(small_lake).path
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE mirror.doubled")
    write(small_lake, [make_episode(50)])
    assert "could not be changed" in refresh_catalog(small_lake).rebuilt
    with Catalog(small_lake, refresh=False) as catalog:
        assert contents(catalog) == rebuilt_contents(small_lake, tmp_path / "again.duckdb")


def test_a_pinned_lake_needs_its_own_file(
    small_lake: Lake, make_episode: MakeEpisode, tmp_path: Path
) -> None:
    small_lake.refresh()
    pinned = small_lake.at(small_lake.versions())
    write(small_lake, [make_episode(50)])
    with pytest.raises(CatalogError, match="pinned to old versions"):
        refresh_catalog(pinned)
    with Catalog(pinned, tmp_path / "old.duckdb") as old, Catalog(small_lake) as new:
        counts = [c.query("SELECT count(*) AS n FROM episodes")["n"][0].as_py() for c in (old, new)]
    assert counts == [6, 7]


def test_no_room_to_write_is_one_clear_error(small_lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CatalogError, match="cannot be refreshed"):
        refresh_catalog(small_lake, tmp_path / "file" / "catalog.duckdb")


def test_refreshers_and_readers_at_once(
    small_lake: Lake, make_episode: MakeEpisode, tmp_path: Path
) -> None:
    refresh_catalog(small_lake)
    wrong: list[str] = []
    stop = threading.Event()

    def refresher() -> None:
        own = Lake(small_lake.uri, {})
        while not stop.is_set():
            refresh_catalog(own)

    def reader() -> None:
        known = 6
        with Catalog(Lake(small_lake.uri, {}), refresh=False) as catalog:
            while not stop.is_set():
                row = catalog.query(
                    "SELECT count(*) AS n, count(label_version) AS labelled FROM episodes"
                ).to_pylist()[0]
                if row["n"] < known or row["labelled"] != row["n"]:
                    wrong.append(f"{row} after {known}")
                known = row["n"]

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            wrong.append(repr(error))

    jobs = [refresher, refresher, reader]
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for number in range(60, 65):
        write(small_lake, [make_episode(number)])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    with Catalog(small_lake) as catalog:
        assert contents(catalog) == rebuilt_contents(small_lake, tmp_path / "again.duckdb")
    assert not list(Path(small_lake.uri).glob(".catalog*"))
    assert catalog_path(small_lake).exists()


@pytest.mark.parametrize("attempts", [1, 4])
def test_a_file_replaced_while_it_is_copied_does_no_harm(
    small_lake: Lake,
    make_episode: MakeEpisode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attempts: int,
) -> None:
    refresh_catalog(small_lake)
    write(small_lake, [make_episode(80)])
    copy = shutil.copyfile
    raced: list[bool] = []

    def copy_late(source: Path, target: Path) -> None:
        if not raced:
            raced.append(True)
            write(small_lake, [make_episode(81)])
            assert refresh_catalog(small_lake).changed  # another one, faster
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_late)
    monkeypatch.setattr("catalog.refresh._ATTEMPTS", attempts)
    refresh_catalog(small_lake)
    monkeypatch.undo()
    # The last attempt publishes the older lake that it had seen, whole; the next one catches up.
    assert refresh_catalog(small_lake).changed == (attempts == 1)
    with Catalog(small_lake, refresh=False) as catalog:
        assert contents(catalog) == rebuilt_contents(small_lake, tmp_path / "again.duckdb")


def test_a_damaged_lake_is_named_as_such(small_lake: Lake) -> None:
    for path in Path(small_lake.table_uri("episodes")).glob("data/*.lance"):
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(LakeError, match=r"read episodes for the catalog: .*LanceError"):
        refresh_catalog(small_lake)
