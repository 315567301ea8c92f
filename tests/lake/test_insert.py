"""Insert-only merges: one winner per key, harmless to repeat, patient with other writers."""

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from lake import Lake, create_lake, insert_new, open_lake
from lake.errors import CommitConflictError, LakeError
from lake.retry import until_won
from lake.tables import TABLES


def spec_rows(*keys: str, text: str = "{}") -> pa.Table:
    return pa.table({"spec_id": list(keys), "spec_json": [text] * len(keys)})


def specs(lake: Lake) -> dict[str, str]:
    rows = lake.latest("specs").to_table().to_pylist()
    assert len({row["spec_id"] for row in rows}) == len(rows)
    return {row["spec_id"]: row["spec_json"] for row in rows}


def test_rows_that_are_there_stay_as_they_are(lake: Lake) -> None:
    assert insert_new(lake, "specs", spec_rows("a", "b", text="first")) == 2
    assert insert_new(lake, "specs", spec_rows("b", "c", text="second")) == 1
    assert specs(lake) == {"a": "first", "b": "first", "c": "second"}


def test_nothing_to_insert_makes_no_version(lake: Lake) -> None:
    before = lake.latest("specs").version
    assert insert_new(lake, "specs", spec_rows()) == 0
    assert lake.latest("specs").version == before


def test_columns_left_out_are_null_and_order_does_not_count(lake: Lake) -> None:
    rows = pa.table({"successes": [3], "evaluation_id": ["e"], "episodes": [5]})
    assert insert_new(lake, "evaluations", rows) == 1
    [row] = lake.latest("evaluations").to_table().to_pylist()
    assert (row["episodes"], row["successes"], row["task"]) == (5, 3, None)
    assert lake.latest("evaluations").schema.names == TABLES["evaluations"].names


def test_a_key_of_two_columns(lake: Lake) -> None:
    rows = pa.table({"episode_id": ["e", "e", "f"], "feature": ["a", "b", "a"], "count": [1, 2, 3]})
    assert insert_new(lake, "stats", rows) == 3
    assert insert_new(lake, "stats", rows.slice(1)) == 0
    assert lake.latest("stats").count_rows() == 3


@pytest.mark.parametrize(
    ("table", "rows", "message"),
    [
        ("specs", spec_rows("a", "a"), "the same key twice"),
        ("trajectories", spec_rows("a"), "no key"),
        ("nonsense", spec_rows("a"), "no table 'nonsense'"),
        ("specs", pa.table({"spec_id": ["a"], "spec": ["{}"]}), "unknown columns: spec"),
        ("specs", pa.table({"spec_json": ["{}"]}), "lacks its key column spec_id"),
    ],
)
def test_bad_rows_are_refused(lake: Lake, table: str, rows: pa.Table, message: str) -> None:
    with pytest.raises(LakeError, match=message):
        insert_new(lake, table, rows)
    assert not specs(lake)


def test_racing_writers_with_overlapping_keys(lake: Lake) -> None:
    inserted: list[int] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(6)

    def run(thread: int) -> None:
        try:
            mine = open_lake(lake.uri)
            barrier.wait()
            for batch in range(3):
                keys = [f"{batch}-{number}" for number in range(thread, thread + 5)]
                inserted.append(insert_new(mine, "specs", spec_rows(*keys, text=str(thread))))
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert set(specs(lake)) == {f"{batch}-{number}" for batch in range(3) for number in range(10)}
    assert sum(inserted) == 30


def test_a_conflict_is_tried_again_and_any_other_error_is_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0 * (low + high))
    failures = ["Commit conflict for version 3", "Too many concurrent writers"]
    real = Lake.latest

    def latest(self: Lake, table: str) -> object:
        if failures:
            raise LakeError(failures.pop(0))
        return real(self, table)

    monkeypatch.setattr(Lake, "latest", latest)
    assert insert_new(lake, "specs", spec_rows("a")) == 1
    failures.extend(["disk full", "never reached"])
    with pytest.raises(LakeError, match="disk full"):
        insert_new(lake, "specs", spec_rows("b"))
    assert failures.pop() == "never reached"
    failures.extend(["Commit conflict"] * 50)
    with pytest.raises(CommitConflictError, match="first 12 times; run again with fewer"):
        insert_new(lake, "specs", spec_rows("b"))


def test_a_word_in_the_path_is_no_lost_race(tmp_path: Path) -> None:
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise OSError(f"{tmp_path}/conflict.lake: no space left")

    with pytest.raises(LakeError, match="no space left"):
        until_won(create_lake(tmp_path / "conflict.lake"), "write", fail)
    assert len(attempts) == 1
