"""Labels of an episode: its task, whether it succeeded, tags from annotation columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.lerobot.episodes import EpisodeRecord
from ingest.lerobot.modality import Modality
from ingest.source import Finding


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What a LeRobot dataset tells about an episode as a whole."""

    instruction: str | None
    success: bool | None
    tags: tuple[str, ...]


def read_labels(
    record: EpisodeRecord,
    values: Mapping[str, NDArray[Any]],
    tasks: Mapping[int, str],
    modality: Modality,
) -> tuple[Labels, list[Finding]]:
    """Labels by the rows' own indices, with the episode list as the second source.

    Args:
        record: the episode as listed.
        values: columns by source key.
        tasks: the task table.
        modality: names of annotation columns.
    """
    findings: list[Finding] = []

    def note(severity: str, reason: str, detail: str, stream: str) -> None:
        findings.append(
            Finding(
                severity="warning" if severity == "warning" else "info",
                reason=reason,
                where=record.locator,
                detail=detail,
                episode=record.locator,
                stream=stream,
            )
        )

    texts = _texts(values.get("task_index"), tasks)
    unknown = [index for index, text in texts.items() if text is None]
    known = [text for text in texts.values() if text is not None]
    if unknown:
        note(
            "warning",
            "unknown-task",
            f"task_index {unknown} is not in the task table; the episode list is used",
            "task_index",
        )
    if known and record.tasks and not set(known) <= set(record.tasks):
        note(
            "warning",
            "task-differs",
            f"rows say {known}, the episode list says {list(record.tasks)}; the rows are used",
            "task_index",
        )
    if len(texts) > 1:
        note(
            "info",
            "several-tasks",
            f"{len(texts)} tasks; the first step's is the label",
            "task_index",
        )
    first = next(iter(texts.values()), None)
    instruction = first if first is not None else next(iter(record.tasks), None)
    if instruction is not None and not instruction.strip():
        note("info", "empty-task", "the task text is empty; no instruction is set", "task_index")
        instruction = None
    tags = [f"task={text}" for text in known[1:]]
    for name, key in _annotations(values, modality).items():
        if key != "task_index":
            texts = _texts(values.get(key), tasks)
            tags += [f"{name}={text}" for text in texts.values() if text not in {None, instruction}]
    labels = Labels(instruction=instruction, success=read_success(values), tags=tuple(tags))
    return labels, findings


def read_success(values: Mapping[str, NDArray[Any]]) -> bool | None:
    """Outcome by `next.success`, else by a 0/1 `next.reward` that reaches 1, else unknown.

    A reward that is zero throughout is not taken as a failure: demonstrations are often recorded
    without one.
    """
    success = values.get("next.success")
    if success is not None and success.dtype.kind in "bui":
        return bool(success.any())
    reward = values.get("next.reward")
    if reward is None or reward.dtype.kind not in "fiu":
        return None
    return True if np.isin(reward, (0, 1)).all() and (reward == 1).any() else None


def _texts(column: NDArray[Any] | None, tasks: Mapping[int, str]) -> dict[int, str | None]:
    """Distinct task indices of a column in order of appearance, with their texts."""
    if column is None or column.dtype.kind not in "iu" or column.ndim != 1:
        return {}
    distinct, first = np.unique(column, return_index=True)
    return {int(i): tasks.get(int(i)) for i in distinct[np.argsort(first)]}


def _annotations(values: Mapping[str, NDArray[Any]], modality: Modality) -> dict[str, str]:
    """Annotation name -> column: those named in modality.json, and every `annotation.*` column."""
    found = {
        key.removeprefix("annotation."): key for key in values if key.startswith("annotation.")
    }
    return {**found, **(modality.annotations or {})}
