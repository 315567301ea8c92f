from typing import Any

import numpy as np
import pytest

from ingest.lerobot.episodes import EpisodeRecord
from ingest.lerobot.labels import read_labels, read_success
from ingest.lerobot.modality import Modality
from tests.ingest.lerobot_data import reasons

TASKS = {0: "pick", 3: "place", 4: ""}


def record(*tasks: str) -> EpisodeRecord:
    return EpisodeRecord(index=0, length=3, tasks=tasks, data_file="d.parquet")


def label(indices: list[int] | None, *tasks: str) -> tuple[Any, set[str]]:
    values = {} if indices is None else {"task_index": np.array(indices, np.int64)}
    labels, findings = read_labels(record(*tasks), values, TASKS, Modality())
    return labels, reasons(findings)


def test_the_rows_index_names_the_task() -> None:
    labels, found = label([3, 3, 3], "place")
    assert (labels.instruction, labels.tags, found) == ("place", (), set())


def test_several_tasks_in_one_episode() -> None:
    labels, found = label([3, 0, 0], "pick", "place")
    assert labels.instruction == "place"
    assert labels.tags == ("task=pick",)
    assert found == {"several-tasks"}


def test_an_index_outside_the_table_falls_back_to_the_list() -> None:
    labels, found = label([9, 9, 9], "fold")
    assert labels.instruction == "fold"
    assert found == {"unknown-task"}


def test_rows_and_list_that_differ() -> None:
    labels, found = label([0, 0, 0], "place")
    assert labels.instruction == "pick"
    assert found == {"task-differs"}


def test_the_list_alone_is_enough() -> None:
    assert label(None, "fold")[0].instruction == "fold"
    assert label(None)[0].instruction is None


def test_an_empty_text_is_no_instruction() -> None:
    labels, found = label([4, 4, 4], "")
    assert labels.instruction is None
    assert found == {"empty-task"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"next.success": np.array([False, False, True])}, True),
        ({"next.success": np.array([False, False])}, False),
        ({"next.success": np.array([0, 1], np.int64)}, True),
        ({"next.success": np.array([False]), "next.reward": np.array([1.0])}, False),
        ({"next.reward": np.array([0.0, 1.0])}, True),
        ({"next.reward": np.array([0.0, 0.0])}, None),
        ({"next.reward": np.array([0.2, 1.0])}, None),
        ({"next.reward": np.array([0.0, 2.0])}, None),
    ],
)
def test_success(values: dict[str, Any], expected: object) -> None:
    assert read_success(values) is expected
