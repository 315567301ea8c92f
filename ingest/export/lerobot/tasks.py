"""The task table of a dataset: what the task indices of its episodes stand for.

A lake has the indices as recorded and, as labels, the texts: the instruction, and a tag
`task=<text>` for each further task of an episode, `<annotation>=<text>` for those of GR00T's
annotation columns. Put together they give the table again, with the labels as they are now.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.export.errors import UnfitError
from ingest.export.facts import EpisodeFacts
from ingest.export.lerobot.names import is_lerobot
from lake.spec import Spec

_ANNOTATION: Final = "annotation."
TASK_INDEX: Final = "task_index"
_CONVENTION: Final = "annotation:"


@dataclass(frozen=True, kw_only=True)
class TaskUse:
    """The task indices of an episode.

    Attributes:
        origin: dataset and source; within one an index should have one meaning.
        columns: name of each feature of task indices -> recorded index -> text. `task_index` is
            always there; `{None: text}` where the lake has no such feature.
    """

    origin: tuple[str, str]
    columns: Mapping[str, Mapping[int | None, str]]


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """Texts of a dataset's tasks.

    Attributes:
        texts: row i is task index i.
    """

    texts: tuple[str, ...]
    _by_index: Mapping[int, int] | None

    def new_indices(
        self, use: TaskUse, name: str, stored: NDArray[Any] | None, num_steps: int
    ) -> NDArray[np.int64]:
        """int64 [T]: a feature of an episode in terms of this table."""
        meaning = use.columns[name]
        if stored is None or None in meaning:
            return np.full(num_steps, self._new(None, meaning[None]), np.int64)
        result = np.empty(num_steps, np.int64)
        for old, text in meaning.items():
            result[stored.reshape(num_steps) == old] = self._new(old, text)
        return result

    def used(self, use: TaskUse) -> list[str]:
        """Texts of the tasks of an episode's steps, in order of appearance."""
        return list(dict.fromkeys(use.columns[TASK_INDEX].values()))

    def _new(self, old: int | None, text: str) -> int:
        if self._by_index is not None and old is not None:
            return self._by_index[old]
        return self.texts.index(text)


def annotation_features(spec: Spec) -> dict[str, str]:
    """Feature -> annotation, by name, of a LeRobot spec's features of indices into the tasks."""
    named = {
        text.split(" ")[0]: name.removeprefix(_CONVENTION)
        for name, text in spec.conventions.items()
        if name.startswith(_CONVENTION)
    }
    found = {}
    for feature in spec.features:
        if feature.source_name == TASK_INDEX or feature.shape not in {(), (1,)}:
            continue
        if feature.dtype == "string" or np.dtype(feature.dtype).kind not in "iu":
            continue
        if feature.name in named:
            found[feature.name] = named[feature.name]
        elif feature.source_name.startswith(_ANNOTATION):
            found[feature.name] = feature.source_name.removeprefix(_ANNOTATION)
    return found


def task_use(facts: EpisodeFacts, left_out: Collection[str]) -> TaskUse:
    """What an episode's task indices mean, by its labels.

    Args:
        facts: with the columns of task indices among the features read.
        left_out: names in the lake of features that are not written.

    Raises:
        UnfitError: `unknown-task`: there are more indices than texts.
    """
    labels = facts.labels
    columns: dict[str, dict[int | None, str]] = {}
    stored = facts.values(TASK_INDEX) if is_lerobot(facts.format) else None
    if stored is None or TASK_INDEX in left_out:
        columns[TASK_INDEX] = {None: labels.text}
    else:
        more = _texts_of("task", labels.tags)
        columns[TASK_INDEX] = _match(TASK_INDEX, stored, [labels.text, *more], {}, None)
    known = {i: text for i, text in columns[TASK_INDEX].items() if i is not None}
    if is_lerobot(facts.format):
        for name, annotation in annotation_features(facts.signals.spec).items():
            values = facts.signals.features.get(name)
            if values is not None and name not in left_out:
                texts = _texts_of(annotation, labels.tags)
                columns[name] = _match(name, values, texts, known, labels.text)
    return TaskUse(origin=(facts.dataset, facts.source), columns=columns)


def task_table(uses: Sequence[TaskUse]) -> TaskTable:
    """The table of a dataset: the recorded indices where they agree, without gaps; else by text."""
    pairs = [pair for use in uses for meaning in use.columns.values() for pair in meaning.items()]
    by_index: dict[int, str] = {}
    agree = True
    for old, text in pairs:
        agree = agree and old is not None and by_index.setdefault(old, text) == text
    if agree:
        order = sorted(by_index)
        return TaskTable(
            texts=tuple(by_index[old] for old in order),
            _by_index={old: new for new, old in enumerate(order)},
        )
    return TaskTable(texts=tuple(dict.fromkeys(text for _, text in pairs)), _by_index=None)


def _texts_of(name: str, tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix(f"{name}=") for tag in tags if tag.startswith(f"{name}=")]


def _match(
    stream: str,
    stored: NDArray[Any],
    texts: list[str],
    known: Mapping[int, str],
    default: str | None,
) -> dict[int | None, str]:
    """Distinct indices in order of appearance with the texts in their order.

    Args:
        stream: name, for errors.
        stored: int [T].
        texts: of those indices that are not known, in order.
        known: indices whose text is known; it may or may not stand in `texts` again.
        default: what the only unknown index without a text means, None where it must have one.
    """
    distinct, first = np.unique(stored.reshape(len(stored), -1)[:, 0], return_index=True)
    indices = [int(index) for index in distinct[np.argsort(first)]]
    left = [text for text in texts if text not in known.values()]
    unknown = [index for index in indices if index not in known]
    if len(unknown) == 1 and not left and default is not None:
        left = [default]
    if len(unknown) == 1 and default is None:
        left = left[:1]  # a tag that is no task of a step
    if len(unknown) != len(left):
        raise UnfitError(
            f"its steps name the tasks {indices}, and its labels give {len(left)} texts for"
            f" {len(unknown)} of them; leave {stream} out, and the instruction stands for all",
            reason="unknown-task",
            stream=stream,
        )
    meaning: dict[int | None, str] = dict(zip(unknown, left, strict=True))
    return {index: known[index] if index in known else meaning[index] for index in indices}
