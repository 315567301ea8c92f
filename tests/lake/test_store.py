"""Creating, opening, pinning; errors that say what to do; credentials that stay hidden."""

import shutil
import threading
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from lake import EpisodeWriter, Lake, create_lake, insert_new, open_lake, visible_episodes
from lake.errors import CorruptDataError, LakeError, LakeNotFoundError, LakeVersionError
from lake.tables import LAYOUT_KEY, STORAGE_VERSION, TABLES
from tests.episodes import make_episode


def test_a_new_lake_has_every_table_empty(lake: Lake) -> None:
    for table, schema in TABLES.items():
        dataset = lake.dataset(table)
        assert dataset.schema.names == schema.names
        assert dataset.count_rows() == 0
        assert dataset.data_storage_version == STORAGE_VERSION


def test_creating_again_opens_what_is_there(lake: Lake) -> None:
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(1))
    assert visible_episodes(create_lake(lake.uri)).num_rows == 1


def test_many_threads_create_one_lake(tmp_path: Path) -> None:
    made: list[Lake] = []
    barrier = threading.Barrier(6)

    def create() -> None:
        barrier.wait()
        made.append(create_lake(tmp_path / "x.lake"))

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    assert made[0].versions() == dict.fromkeys(TABLES, 1)


def test_a_slow_creator_does_not_empty_what_another_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = write_fragments
    fast: list[Lake] = []

    def overtaken(*args: object, **kwargs: object) -> object:
        creation = real(*args, **kwargs)
        if not fast:
            monkeypatch.setattr("lake.create.write_fragments", real)
            fast.append(create_lake(tmp_path / "x.lake"))
            with EpisodeWriter(fast[0]) as writer:
                writer.add(make_episode(1))
        return creation

    monkeypatch.setattr("lake.create.write_fragments", overtaken)
    slow = create_lake(tmp_path / "x.lake")
    assert fast
    assert visible_episodes(slow).num_rows == 1


@pytest.mark.parametrize("tables_made", range(len(TABLES)))
def test_a_creation_cut_short_is_no_lake_and_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables_made: int
) -> None:
    real: Any = write_fragments
    made: list[str] = []

    def dies(*args: object, **kwargs: object) -> object:
        if len(made) == tables_made:
            raise KeyboardInterrupt
        made.append("table")
        return real(*args, **kwargs)

    monkeypatch.setattr("lake.create.write_fragments", dies)
    with pytest.raises(KeyboardInterrupt):
        create_lake(tmp_path / "x.lake")
    monkeypatch.setattr("lake.create.write_fragments", real)
    with pytest.raises(LakeNotFoundError):
        open_lake(tmp_path / "x.lake")
    assert create_lake(tmp_path / "x.lake").versions() == dict.fromkeys(TABLES, 1)


@pytest.mark.parametrize("kind", ["absent", "empty folder", "file"])
def test_no_lake_says_how_to_make_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.lake"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("not a lake")
    with pytest.raises(LakeNotFoundError, match=r"x\.lake: no lake here; `headrace ingest"):
        open_lake(path)


def test_a_file_is_not_overwritten_by_a_lake(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("precious")
    with pytest.raises(LakeError, match="choose another path"):
        create_lake(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "precious"


@pytest.mark.parametrize("version", [b"2", b"999", b"", None])
def test_an_unknown_layout_is_refused(lake: Lake, version: bytes | None) -> None:
    metadata = {} if version is None else {LAYOUT_KEY: version}
    schema = TABLES["commits"].with_metadata(metadata)
    lance.write_dataset(schema.empty_table(), lake.table_uri("commits"), mode="overwrite")
    for opener in (open_lake, create_lake):
        with pytest.raises(LakeVersionError, match=r"layout version .* this Headrace reads 1"):
            opener(lake.uri)


def test_the_layout_survives_commits(lake: Lake) -> None:
    with EpisodeWriter(lake, batch_episodes=1) as writer:
        for number in range(3):
            writer.add(make_episode(number))
    assert open_lake(lake.uri).dataset("commits").schema.metadata[LAYOUT_KEY] == b"1"


def test_uris_are_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create_lake("x.lake/")
    assert open_lake(f"file://{tmp_path}/x.lake").uri == str(tmp_path / "x.lake")
    assert open_lake(Path("x.lake")).uri == str(tmp_path / "x.lake")


def test_a_pinned_lake_does_not_move(lake: Lake) -> None:
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(1))
    pinned = open_lake(lake.uri, versions=lake.versions())
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(2))
    pinned.refresh()
    assert visible_episodes(pinned).num_rows == 1
    assert visible_episodes(lake).num_rows == 2
    assert visible_episodes(lake.at(pinned.versions())).num_rows == 1
    with pytest.raises(LakeError, match="pinned to versions cannot be written"):
        EpisodeWriter(pinned)


def test_a_handle_sees_newer_versions_after_refresh(lake: Lake) -> None:
    reader = open_lake(lake.uri)
    assert visible_episodes(reader).num_rows == 0
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(1))
    assert visible_episodes(reader).num_rows == 0
    reader.refresh()
    assert visible_episodes(reader).num_rows == 1


def test_reopening_reads_anew_and_moves_nothing(lake: Lake) -> None:
    pinned, before = lake.at(lake.versions()), lake.versions()
    seen = {id(handle): handle.dataset("episodes") for handle in (lake, pinned)}
    with EpisodeWriter(open_lake(lake.uri)) as writer:
        writer.add(make_episode(1))
    for handle in (lake, pinned):
        handle.reopen()
        assert handle.dataset("episodes") is not seen[id(handle)]
        assert handle.versions() == before
        assert visible_episodes(handle).num_rows == 0
    lake.refresh()
    assert visible_episodes(lake).num_rows == 1


def test_a_version_that_is_gone_is_named(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"table commits has no version 77: .* another lake"):
        lake.at({**lake.versions(), "commits": 77}).dataset("commits")
    with pytest.raises(LakeError, match="not among the pinned"):
        lake.at({"commits": 1}).dataset("episodes")
    with pytest.raises(LakeError, match="no table 'nonsense'"):
        lake.dataset("nonsense")


def test_specs_are_read_once_and_missing_ones_named(lake: Lake) -> None:
    episode = make_episode(1)
    with EpisodeWriter(lake) as writer:
        writer.add(episode)
    assert lake.spec(episode.spec.spec_id) == episode.spec
    assert lake.spec(episode.spec.spec_id) is lake.spec(episode.spec.spec_id)
    with pytest.raises(
        LakeError, match="no spec 'nonsense': what names it, such as a plan, was made of another"
    ):
        lake.spec("nonsense")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"features": 3}', make_episode(1).spec.to_json()[:-9], "true"]
)
def test_a_damaged_spec_is_corruption(lake: Lake, text: str) -> None:
    insert_new(lake, "specs", pa.table({"spec_id": ["0123456789abcdef"], "spec_json": [text]}))
    with pytest.raises(CorruptDataError, match="spec 0123456789abcdef: cannot be parsed"):
        open_lake(lake.uri).spec("0123456789abcdef")


def test_a_spec_that_is_another_is_corruption(lake: Lake) -> None:
    text = make_episode(1).spec.to_json()
    insert_new(lake, "specs", pa.table({"spec_id": ["0123456789abcdef"], "spec_json": [text]}))
    with pytest.raises(CorruptDataError, match="does not match its id"):
        open_lake(lake.uri).spec("0123456789abcdef")


@pytest.mark.parametrize("first", ["specs", "trajectories", "stats"])
def test_a_handle_sees_tables_that_agree_whatever_it_opened_first(lake: Lake, first: str) -> None:
    reader = open_lake(lake.uri)
    reader.dataset(first)
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(1))
    assert visible_episodes(reader).num_rows == 0
    assert visible_episodes(reader.at(reader.versions())).num_rows == 0


def test_credentials_are_never_shown(tmp_path: Path) -> None:
    options = {"aws_secret_access_key": "hunter2hunter2", "aws_access_key_id": "AKIAHIDDEN"}
    create_lake(tmp_path / "x.lake", storage_options=options)
    lake = open_lake(tmp_path / "x.lake", storage_options=options)
    assert "hunter2" not in repr(lake) + str(lake) + repr(lake.at(lake.versions()))
    with pytest.raises(LakeError) as caught, lake.errors_named("test"):
        raise OSError("refused: hunter2hunter2 for AKIAHIDDEN")
    assert str(caught.value) == f"{lake.uri}: test: refused: *** for ***"
    assert caught.value.__cause__ is None


def test_a_panic_of_the_engine_becomes_an_error(lake: Lake) -> None:
    class PanicException(BaseException):
        """As pyo3 raises it."""

    with pytest.raises(LakeError, match="test: boom"), lake.errors_named("test"):
        raise PanicException("boom")
    with pytest.raises(KeyboardInterrupt), lake.errors_named("test"):
        raise KeyboardInterrupt


def test_an_empty_path_is_no_lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (create_lake, open_lake):
        with pytest.raises(LakeError, match="path of the lake is empty"):
            call("")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_things_becomes_no_lake(tmp_path: Path) -> None:
    (tmp_path / "episode_0.hdf5").touch()
    with pytest.raises(LakeError, match=r"not empty \(it holds episode_0\.hdf5\)"):
        create_lake(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["episode_0.hdf5"]


def test_a_creation_cut_short_is_completed(tmp_path: Path) -> None:
    create_lake(tmp_path / "whole")
    for table in ("trajectories", "episodes"):
        shutil.copytree(tmp_path / "whole" / f"{table}.lance", tmp_path / "part" / f"{table}.lance")
    assert create_lake(tmp_path / "part").versions() == open_lake(tmp_path / "whole").versions()
