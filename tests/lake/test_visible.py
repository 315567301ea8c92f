"""Only rows that the ledger names are episodes."""

import pyarrow as pa
import pytest

from lake import EpisodeWriter, Lake, find_episode, insert_new, visible_episodes
from lake.episode_row import episode_rows
from lake.errors import EpisodeNotFoundError
from lake.ledger import LedgerEntry, ledger_rows, new_commit_id, orphans, record
from lake.writer import append_trajectories
from tests.episodes import make_episode


def append(lake: Lake, number: int, commit_id: str) -> None:
    """A row of `trajectories` without a row in the ledger."""
    rows = episode_rows(make_episode(number), commit_id)
    labels = pa.Table.from_pylist([rows.label])
    insert_new(lake, "episodes", labels)
    insert_new(
        lake,
        "specs",
        pa.table({"spec_id": [rows.spec.spec_id], "spec_json": [rows.spec.to_json()]}),
    )
    append_trajectories(lake, [rows.trajectory], commit_id)
    lake.refresh()


def entry(number: int, commit_id: str) -> LedgerEntry:
    episode = make_episode(number)
    return LedgerEntry(episode.ingest_key, commit_id, episode.episode_id)


def test_a_row_without_ledger_is_not_there(lake: Lake) -> None:
    append(lake, 1, "c1")
    assert visible_episodes(lake).num_rows == 0
    with pytest.raises(EpisodeNotFoundError):
        find_episode(lake, make_episode(1).episode_id)
    assert orphans(lake, ledger_rows(lake)) == [entry(1, "c1")]


def test_of_two_rows_the_one_the_ledger_names_counts(lake: Lake) -> None:
    append(lake, 1, "c1")
    append(lake, 1, "c2")
    assert record(lake, [entry(1, "c2")], {}) == 1
    assert record(lake, [entry(1, "c1")], {}) == 0
    lake.refresh()
    rows = visible_episodes(lake, ["episode_id", "commit_id"]).to_pylist()
    assert [row["commit_id"] for row in rows] == ["c2"]
    assert find_episode(lake, make_episode(1).episode_id) == rows[0]["address"] == 1 << 32
    assert orphans(lake, ledger_rows(lake)) == []


def test_the_same_commit_applied_twice_counts_once(lake: Lake) -> None:
    append(lake, 1, "c1")
    append(lake, 2, "c2")
    append(lake, 1, "c1")
    record(lake, [entry(1, "c1"), entry(2, "c2")], {})
    lake.refresh()
    assert visible_episodes(lake)["address"].to_pylist() == [0, 1 << 32]
    assert find_episode(lake, make_episode(1).episode_id) == 0


def test_the_oldest_orphan_is_adopted(lake: Lake) -> None:
    append(lake, 1, "c1")
    append(lake, 1, "c2")
    append(lake, 2, "c3")
    with EpisodeWriter(lake) as writer:
        assert writer.has(make_episode(1).ingest_key)
    assert (writer.report.adopted, writer.report.written) == (1, 0)
    rows = visible_episodes(lake, ["commit_id"]).to_pylist()
    assert [row["commit_id"] for row in rows] == ["c1"]


def test_columns_come_as_asked_in_order_of_address(lake: Lake) -> None:
    with EpisodeWriter(lake, batch_episodes=2) as writer:
        for number in range(5):
            writer.add(make_episode(number, steps=number + 2))
    rows = visible_episodes(lake, ["num_steps", "ingest_key", "dataset"])
    assert rows.column_names == ["num_steps", "ingest_key", "dataset", "address"]
    assert rows.schema.field("address").type == pa.uint64()
    assert rows["num_steps"].to_pylist() == [2, 3, 4, 5, 6]
    assert rows["address"].to_pylist() == [0, 1, 1 << 32, 1 << 32 | 1, 2 << 32]


def test_commit_ids_are_unique_and_ordered_in_time() -> None:
    ids = [new_commit_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert [i.split("-")[0] for i in ids] == sorted(i.split("-")[0] for i in ids)
