"""The task table: task index -> text, looked up by value and never by row position.

v2 has `meta/tasks.jsonl`, v3 `meta/tasks.parquet` whose text column is called `task`,
`__index_level_0__` (a pandas index without a name) or something else, with rows in any order.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.errors import SourceError
from ingest.lerobot.jsonfiles import read_json_lines
from ingest.lerobot.parquet_errors import PARQUET_ERRORS
from ingest.source import Finding

_TEXT_COLUMNS: Final = ("task", "__index_level_0__", "index")


def read_tasks(root: Path) -> tuple[dict[int, str], list[Finding]]:
    """Task texts by task index, from whichever of the two files is there.

    A missing or damaged table is a finding, not an error: episodes also carry their task texts.
    """
    parquet, lines = root / "meta" / "tasks.parquet", root / "meta" / "tasks.jsonl"
    try:
        if parquet.is_file():
            return _from_parquet(parquet, root)
        rows, findings = read_json_lines(lines, root)
        pairs = [(row.get("task_index"), row.get("task")) for row in rows]
        return _by_value(pairs, str(lines.relative_to(root)), findings)
    except SourceError as error:
        return {}, [
            Finding(
                severity="warning",
                reason=error.reason,
                where="meta/tasks",
                detail=f"{error}; the task texts of the episode list are used",
            )
        ]


def _from_parquet(path: Path, root: Path) -> tuple[dict[int, str], list[Finding]]:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
        texts = [name for name in _text_columns(table) if name in table.column_names]
        if "task_index" not in table.column_names or not texts:
            raise SourceError(
                f"{path}: has columns {', '.join(table.column_names)}; task_index and a text"
                " column are needed",
                reason="bad-tasks",
            )
        indices, values = table["task_index"].to_pylist(), table[texts[0]].to_pylist()
    except PARQUET_ERRORS as error:
        raise SourceError(f"{path}: {error}", reason="unreadable-file") from error
    return _by_value(list(zip(indices, values, strict=True)), str(path.relative_to(root)), [])


def _text_columns(table: pa.Table) -> list[str]:
    """Candidates for the text column: usual names, the pandas index, any other text column."""
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    try:
        index = json.loads(metadata.get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        index = []
    texts = [f.name for f in table.schema if pa.types.is_string(f.type)]
    texts += [f.name for f in table.schema if pa.types.is_large_string(f.type)]
    wanted = [*_TEXT_COLUMNS, *(name for name in index if isinstance(name, str)), *texts]
    return [name for name in dict.fromkeys(wanted) if name in texts]


def _by_value(
    pairs: list[tuple[object, object]], where: str, findings: list[Finding]
) -> tuple[dict[int, str], list[Finding]]:
    tasks: dict[int, str] = {}
    for row, (index, text) in enumerate(pairs):
        if not isinstance(index, int) or not isinstance(text, str):
            detail = f"row {row} holds {index!r}: {text!r}; it is not used"
        elif index in tasks and tasks[index] != text:
            detail = f"task {index} is {tasks[index]!r} and {text!r}; the first is used"
        else:
            tasks[index] = text
            continue
        findings.append(Finding(severity="warning", reason="bad-tasks", where=where, detail=detail))
    if list(tasks) != sorted(tasks):
        findings.append(
            Finding(
                severity="info",
                reason="unsorted-tasks",
                where=where,
                detail="rows are not in the order of task_index; tasks are looked up by value",
            )
        )
    return tasks, findings
