import json
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.lerobot.tasks import read_tasks
from tests.ingest.lerobot_data import reasons, write_lines, write_parquet, write_tasks


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "meta").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", ["task", "__index_level_0__", "index", "anything"])
def test_the_text_column_may_have_any_name(root: Path, name: str) -> None:
    write_tasks(root, {0: "a", 1: "b"}, text_column=name)
    assert read_tasks(root) == ({0: "a", 1: "b"}, [])


def test_rows_are_looked_up_by_value(root: Path) -> None:
    write_tasks(root, {2: "c", 0: "a", 7: "h"})
    tasks, findings = read_tasks(root)
    assert tasks == {0: "a", 2: "c", 7: "h"}
    assert reasons(findings) == {"unsorted-tasks"}


def test_large_strings_are_text_too(root: Path) -> None:
    table = pa.table({"task_index": [0], "task": pa.array(["a"], pa.large_string())})
    write_parquet(root / "meta/tasks.parquet", table)
    assert read_tasks(root)[0] == {0: "a"}


def test_json_lines(root: Path) -> None:
    write_lines(
        root / "meta/tasks.jsonl", [{"task_index": 1, "task": ""}, {"task_index": 0, "task": "x"}]
    )
    assert read_tasks(root)[0] == {1: "", 0: "x"}


def test_json_text_may_hold_any_line_separator_of_unicode(root: Path) -> None:
    text = "pick\u2028place\u0085home"
    line = json.dumps({"task_index": 0, "task": text}, ensure_ascii=False)
    (root / "meta/tasks.jsonl").write_text(line + "\r\n", encoding="utf-8", newline="")
    assert read_tasks(root) == ({0: text}, [])


def test_bad_rows_are_told_and_the_others_used(root: Path) -> None:
    rows: list[dict[str, object]] = [
        {"task_index": 0, "task": "a"},
        {"task_index": 0, "task": "other"},
        {"task_index": "1", "task": "b"},
        {"task": "c"},
    ]
    write_lines(root / "meta/tasks.jsonl", rows)
    tasks, findings = read_tasks(root)
    assert tasks == {0: "a"}
    assert [f.reason for f in findings] == ["bad-tasks"] * 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "missing-file"), (b"", "empty-file"), (b"{nonsense", "empty-file")],
)
def test_a_lost_table_is_a_finding(root: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (root / "meta/tasks.jsonl").write_bytes(content)
    tasks, findings = read_tasks(root)
    assert tasks == {}
    assert reasons(findings) == {reason}


@pytest.mark.parametrize(
    ("content", "reason"), [(b"PAR1 no footer", "unreadable-file"), (b"", "unreadable-file")]
)
def test_a_damaged_parquet_table_is_a_finding(root: Path, content: bytes, reason: str) -> None:
    (root / "meta/tasks.parquet").write_bytes(content)
    tasks, findings = read_tasks(root)
    assert tasks == {}
    assert reasons(findings) == {reason}


def test_a_table_without_text_is_a_finding(root: Path) -> None:
    write_parquet(root / "meta/tasks.parquet", pa.table({"task_index": [0], "n": [1]}))
    assert reasons(read_tasks(root)[1]) == {"bad-tasks"}
