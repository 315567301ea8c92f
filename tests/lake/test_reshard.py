"""Small fragments joined: the lake stays the same, plans read on, no death does harm."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

from catalog import Catalog, set_labels
from lake import (
    Episode,
    EpisodeWriter,
    Lake,
    chunk_messages,
    create_lake,
    open_lake,
    read_episode,
    read_raw_messages,
    visible_episodes,
)
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes
from lake.edit.rearrange import split_episode
from lake.errors import CommitConflictError, CorruptDataError, LakeError
from lake.raw import RawMessage, RawStream
from lake.reshard import reshard
from lake.rewrite import rewrite_fragments
from lake.tables import LAYOUT_KEY
from tests.deaths import Died, dies_at, resolve
from tests.episodes import make_episode
from tests.guarantees.small_ingest import State, state

BY = Author(who="test")
EPISODES = 7


def one(number: int) -> Episode:
    cameras = ("top", "wrist")[: number % 3]
    dtype = "float64" if number % 2 else "float32"
    return make_episode(number, steps=4 + number, camera_names=cameras, dtype=dtype)


def recording(number: int) -> list[RawMessage]:
    return [RawMessage(stream=RawStream(name="/x"), clocks={"log": number}, payload=b"x" * number)]


@pytest.fixture
def daily(lake: Lake) -> Lake:
    """A lake that grew by an episode a day, labelled since; one has a camera, others none."""
    for number in range(EPISODES):
        with EpisodeWriter(lake) as writer:
            writer.add(one(number), chunk_messages(recording(number)))
    set_labels(lake, [one(2).episode_id], split="test", quality=0.5)
    lake.refresh()
    return lake


def fragments(lake: Lake, table: str) -> list[int]:
    return [f.count_rows() for f in lake.latest(table).get_fragments()]


def assert_whole(lake: Lake, expected: State) -> None:
    assert state(lake) == expected
    for number in range(EPISODES):
        episode = read_episode(lake, one(number).episode_id)
        assert episode.content_sha256() == one(number).content_sha256()
        found = [bytes(m.payload) for m in read_raw_messages(lake, episode.episode_id)]
        assert found == [b"x" * number]


def test_small_fragments_become_one(daily: Lake) -> None:
    before, whole = daily.versions(), state(daily)
    with Catalog(daily) as catalog:
        shown = catalog.query("FROM episodes ORDER BY episode_id")
    done = {entry.table: entry for entry in reshard(daily)}
    assert (done["trajectories"].fragments_before, done["trajectories"].fragments_after) == (7, 1)
    assert done["trajectories"].rows == EPISODES
    for table in ("trajectories", "raw", "commits", "stats", "episodes"):
        assert len(fragments(daily, table)) == done[table].fragments_after == 1
    assert_whole(daily, whole)
    assert_whole(open_lake(daily.uri), whole)
    with Catalog(daily) as catalog:
        assert catalog.query("FROM episodes ORDER BY episode_id").equals(shown)
    # What was pinned reads on.
    assert_whole(daily.at(before), whole)
    assert daily.dataset("commits").schema.metadata[LAYOUT_KEY] == b"1"
    assert [entry.rows for entry in reshard(daily)] == [0] * len(done)


def test_fragments_are_bounded(daily: Lake) -> None:
    whole = state(daily)
    reshard(daily, min_rows=2, max_rows=3)
    assert sorted(fragments(daily, "trajectories")) == [1, 3, 3]
    reshard(daily, min_rows=3, max_rows=8)
    assert sorted(fragments(daily, "trajectories")) == [1, 3, 3]
    with EpisodeWriter(daily) as writer:
        writer.add(make_episode(50))
    reshard(daily, min_rows=3, max_rows=8)
    assert sorted(fragments(daily, "trajectories")) == [2, 3, 3]
    assert state(daily).items() > whole.items()
    with pytest.raises(LakeError, match="fragments of 9 to 8 rows make no sense"):
        reshard(daily, min_rows=9, max_rows=8)
    with pytest.raises(LakeError, match="pinned to versions cannot be rewritten"):
        reshard(daily.at(daily.versions()))


def test_a_dry_run_changes_nothing(daily: Lake) -> None:
    before = daily.versions()
    told = reshard(daily, dry_run=True)
    daily.refresh()
    assert daily.versions() == before
    assert told == reshard(daily)


def test_ingest_and_labels_go_on_afterwards(daily: Lake) -> None:
    reshard(daily)
    with EpisodeWriter(daily) as writer:
        for number in range(EPISODES + 2):
            writer.add(one(number), chunk_messages(recording(number)))
    assert (writer.report.present, writer.report.written) == (EPISODES, 2)
    set_labels(daily, [one(0).episode_id, one(8).episode_id], task="pour")
    reshard(daily)
    assert read_episode(daily, one(8).episode_id).task == "pour"
    assert read_episode(daily, one(1).episode_id).task == "lift"


def test_views_survive(daily: Lake) -> None:
    parts = split_episode(daily, one(5).episode_id, [4], BY).shown
    expected = [read_episode(daily, part).content_sha256() for part in parts]
    delete_episodes(daily, [one(1).episode_id], BY)
    seen = visible_episodes(daily)["episode_id"].to_pylist()
    reshard(daily)
    assert sorted(visible_episodes(daily)["episode_id"].to_pylist()) == sorted(seen)
    assert [read_episode(daily, part).content_sha256() for part in parts] == expected


def test_old_versions_stay_while_they_are_tagged(daily: Lake) -> None:
    whole, pinned = state(daily), daily.versions()
    for table in pinned:
        daily.latest(table).tags.create("plan-x", pinned[table])
    between = {table: version - 1 for table, version in pinned.items()}
    reshard(daily, clean_older_than=timedelta(0))
    assert_whole(daily, whole)
    assert_whole(open_lake(daily.uri, versions=pinned), whole)
    with pytest.raises(LakeError, match="has no version"):
        open_lake(daily.uri, versions=between).dataset("trajectories")


def test_rows_that_are_not_episodes_yet_are_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        with monkeypatch.context() as patch:
            dies_at(patch, "lake.writer.record", 2, after=False)
            with pytest.raises(Died), EpisodeWriter(lake) as writer:
                writer.add(one(number))
    reshard(lake)
    assert visible_episodes(lake).num_rows == 0
    with EpisodeWriter(lake) as writer:
        writer.add(one(1))
        writer.add(one(2))
    assert writer.report.adopted == 2
    assert read_episode(lake, one(1).episode_id).content_sha256() == one(1).content_sha256()


def test_a_damaged_row_is_not_copied(daily: Lake) -> None:
    needle = one(4).features["state"].tobytes()
    for file in Path(f"{daily.uri}/trajectories.lance/data").glob("*.lance"):
        data = bytearray(file.read_bytes())
        if (at := data.find(needle)) >= 0:
            data[at] ^= 1
            file.write_bytes(data)
    before = open_lake(daily.uri).versions()["trajectories"]
    with pytest.raises(CorruptDataError, match=f"{one(4).episode_id}: state does not match"):
        reshard(open_lake(daily.uri))
    assert open_lake(daily.uri).versions()["trajectories"] == before


@pytest.mark.parametrize("table", ["trajectories", "raw", "stats", "commits"])
def test_a_copy_that_differs_is_not_taken(
    daily: Lake, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Each table in turn: the copy loses a row, or has two in the other's place."""
    real: Any = resolve("lake.rewrite._rows")
    numbers = [f.fragment_id for f in daily.latest(table).get_fragments()]
    before = daily.latest(table).version

    def shorter(*arguments: Any) -> Any:
        yield from list(real(*arguments))[1:]

    def swapped(*arguments: Any) -> Any:
        yield from [
            batch.slice(row, 1)
            for batch in list(real(*arguments))[::-1]
            for row in range(batch.num_rows)[::-1]
        ]

    for wrong, message in ((shorter, "rows were copied"), (swapped, "not copied as they are")):
        if table == "trajectories" and wrong is shorter:
            continue  # it comes as one batch
        monkeypatch.setattr("lake.rewrite._rows", wrong)
        with pytest.raises(CorruptDataError, match=message):
            rewrite_fragments(daily, table, numbers)
    assert daily.latest(table).version == before


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 5])
@pytest.mark.parametrize(
    "target",
    [
        "lake.rewrite.write_fragments",
        "lake.rewrite.lance.LanceDataset.commit",
        "lake.rewrite.check_rows",
        "lake.rewrite.delete_files",
    ],
)
def test_death_between_any_two_steps(
    daily: Lake, monkeypatch: pytest.MonkeyPatch, target: str, call: int, when: str
) -> None:
    whole = state(daily)
    with monkeypatch.context() as patch:
        died = dies_at(patch, target, call, after=when == "after")
        with pytest.raises(Died):
            reshard(daily, min_rows=2, max_rows=4)
        assert died()
    assert_whole(open_lake(daily.uri), whole)
    reshard(open_lake(daily.uri), min_rows=2, max_rows=4)
    assert fragments(daily, "trajectories") == [4, 3]
    assert_whole(daily, whole)


def test_a_writer_beside_it_loses_nothing(daily: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process appends, labels and adds a feature between the copy and the switch."""
    real: Any = resolve("lake.rewrite.check_rows")
    done: list[str] = []

    def meanwhile(lake: Lake, table: str, *arguments: Any) -> None:
        real(lake, table, *arguments)
        if table == "trajectories" and not done:
            done.append("append")
            with EpisodeWriter(open_lake(lake.uri)) as writer:
                writer.add(one(20))

    monkeypatch.setattr("lake.rewrite.check_rows", meanwhile)
    whole = state(daily)
    reshard(daily)
    assert done
    assert state(daily).items() > whole.items()
    assert read_episode(daily, one(20).episode_id).content_sha256() == one(20).content_sha256()
    assert fragments(daily, "trajectories") in ([7, 1], [1, 7])


@pytest.mark.parametrize("change", ["delete", "add_columns"])
def test_a_change_of_the_same_rows_meanwhile_is_not_lost(
    daily: Lake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    real: Any = resolve("lake.rewrite.check_rows")

    def meanwhile(lake: Lake, table: str, *arguments: Any) -> None:
        real(lake, table, *arguments)
        newest = lake.latest(table)
        if change == "delete":
            newest.delete(f"episode_id = '{one(3).episode_id}'")
        else:
            import pyarrow as pa

            newest.add_columns([pa.field("new", pa.large_list(pa.float32()))])

    monkeypatch.setattr("lake.rewrite.check_rows", meanwhile)
    with pytest.raises(CommitConflictError, match="was changed while it was being rewritten"):
        reshard(daily)
    monkeypatch.undo()
    reshard(daily)
    assert sum(fragments(daily, "trajectories")) == EPISODES - (change == "delete")


def test_a_switch_whose_reply_got_lost_is_not_repeated(
    daily: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = lance.LanceDataset.commit
    calls: list[int] = []

    def reply_lost(*arguments: Any, **options: Any) -> Any:
        done = real(*arguments, **options)
        if options.get("detached"):
            return done
        calls.append(1)
        raise OSError("connection reset")

    monkeypatch.setattr(lance.LanceDataset, "commit", reply_lost)
    whole = state(daily)
    rewritten = [entry for entry in reshard(daily) if entry.rows]
    assert len(calls) == len(rewritten) == 6
    assert_whole(daily, whole)
    assert fragments(daily, "trajectories") == [7]


def test_two_at_once(daily: Lake) -> None:
    whole = state(daily)
    barrier = threading.Barrier(2)
    refused: list[CommitConflictError] = []

    def run() -> None:
        mine = open_lake(daily.uri)
        barrier.wait()
        try:
            reshard(mine)
        except CommitConflictError as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reshard(daily)
    assert len(refused) <= 1
    assert fragments(daily, "trajectories") == [7]
    assert_whole(daily, whole)


def test_what_only_detached_versions_name_is_gone(daily: Lake, tmp_path: Path) -> None:
    reshard(daily)
    versions = Path(f"{daily.uri}/trajectories.lance/_versions")
    assert not list(versions.glob("d*.manifest"))
    assert len(list(versions.glob("*.manifest"))) == daily.latest("trajectories").version
    assert create_lake(tmp_path / "other.lake").uri != daily.uri
