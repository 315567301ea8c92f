"""The task table: what indices stand for, put together from indices and labels."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import freeze_selection, set_labels
from ingest.export.errors import ExportError
from ingest.export.lerobot.tasks import TASK_INDEX, TaskUse, task_table
from tests.ingest.export.lakes import episodes_of, exported, ingested
from tests.ingest.lerobot_data import (
    TASKS,
    edit_rows,
    replace_column,
    v2_data,
    write_lines,
    write_v2,
)


def use(meaning: Mapping[int | None, str], origin: str = "a") -> TaskUse:
    return TaskUse(origin=(origin, origin), columns={TASK_INDEX: meaning})


def indices(uses: list[TaskUse]) -> list[dict[int | None, int]]:
    """New index of each recorded one."""
    import numpy as np

    table = task_table(uses)
    found = []
    for one in uses:
        new: dict[int | None, int] = {}
        for old in one.columns[TASK_INDEX]:
            stored = None if old is None else np.array([old])
            new[old] = int(table.new_indices(one, TASK_INDEX, stored, 1)[0])
            assert table.texts[new[old]] == one.columns[TASK_INDEX][old]
        found.append(new)
    return found


def test_indices_that_agree_stay() -> None:
    assert indices([use({2: "c", 0: "a"}), use({1: "b"})]) == [{2: 2, 0: 0}, {1: 1}]


def test_a_gap_is_closed_in_order() -> None:
    assert indices([use({5: "c"}), use({2: "a"})]) == [{5: 1}, {2: 0}]


def test_one_index_with_two_meanings_becomes_two() -> None:
    assert indices([use({0: "a"}), use({0: "b"}, "b")]) == [{0: 0}, {0: 1}]


def test_texts_without_an_index_are_numbered_as_they_come() -> None:
    assert indices([use({None: "b"}), use({None: "a"}), use({None: "b"})]) == [
        {None: 0},
        {None: 1},
        {None: 0},
    ]


def test_two_indices_of_one_text_stay_two() -> None:
    assert indices([use({0: "a", 1: "a"})]) == [{0: 0, 1: 1}]


def test_a_label_set_anew_is_what_is_written(tmp_path: Path) -> None:
    lake = ingested(write_v2(tmp_path / "toy", (5, 7, 4)), tmp_path / "robots.lake")
    set_labels(lake, freeze_selection(lake, "num_steps = 4"), instruction="open the drawer slowly")
    exported(lake, tmp_path / "out")
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert [e.instruction for e in after] == [*TASKS, "open the drawer slowly"]
    assert [set(e.features["task_index"].tolist()) for e in after] == [{0}, {1}, {2}]


def test_more_indices_than_texts_are_refused(tmp_path: Path) -> None:
    source = write_v2(tmp_path / "toy", (5, 7))
    # The table has no text for index 9.
    edit_rows(
        source / v2_data(0),
        lambda table: replace_column(table, "task_index", [0, 0, 9, 9, 0], pa.int64()),
    )
    lake = ingested(source, tmp_path / "robots.lake")
    with pytest.raises(ExportError, match=r"the tasks \[0, 9\], and its labels give 1 texts"):
        exported(lake, tmp_path / "out")
    exported(lake, tmp_path / "out", left_out=["task_index"])
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert [set(e.features["task_index"].tolist()) for e in after] == [{0}, {1}]


def test_an_empty_task_stays_empty(tmp_path: Path) -> None:
    source = write_v2(tmp_path / "toy", (5,))
    write_lines(source / "meta/tasks.jsonl", [{"task_index": 0, "task": ""}])
    write_lines(source / "meta/episodes.jsonl", [{"episode_index": 0, "tasks": [""], "length": 5}])
    lake = ingested(source, tmp_path / "robots.lake")
    report = exported(lake, tmp_path / "out")
    assert [finding.reason for finding in report.findings] == ["no-task"]
    (after,) = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert after.instruction is None
