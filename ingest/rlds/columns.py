"""The signals of an Example: plain lists, and ragged ones put together from their row lengths."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.rlds.example import IntList, Values
from ingest.rlds.features import STEPS, Leaf

_FLAT: Final = "/ragged_flat_values"
_LENGTHS: Final = "/ragged_row_lengths_"
# Flags and numbers that have one value per step, in the order in which they are trusted.
_COUNTED: Final = ("is_first", "is_last", "is_terminal", "reward", "discount")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One signal.

    Attributes:
        name: as in `features.json`, `steps/observation/state`.
        values: its values, flat.
        row_lengths: of ragged signals, outermost first: how many parts each part has; int64.
    """

    name: str
    values: Values
    row_lengths: tuple[NDArray[np.int64], ...] = ()

    @property
    def is_per_step(self) -> bool:
        """True below `steps/`, False for facts of the whole episode."""
        return self.name.startswith(STEPS)


def columns_of(example: Mapping[str, Values]) -> tuple[list[Column], dict[str, str]]:
    """The signals in order of their names, and those that cannot be put together with the reason.

    Source of the names: TensorFlow Datasets, `core/example_serializer.py`.
    """
    columns, broken = [], {}
    for key in sorted(example):
        name, is_lengths, level = key.rpartition(_LENGTHS)
        if is_lengths and level.isdigit() and name + _FLAT in example:
            continue
        name = key.removesuffix(_FLAT)
        try:
            lengths = _row_lengths(example, name) if key.endswith(_FLAT) else ()
        except (ValueError, OverflowError) as error:
            broken[name] = str(error)
            continue
        columns.append(Column(name=name, values=example[key], row_lengths=lengths))
    return columns, broken


def _row_lengths(example: Mapping[str, Values], name: str) -> tuple[NDArray[np.int64], ...]:
    lengths: list[NDArray[np.int64]] = []
    while isinstance(stored := example.get(f"{name}{_LENGTHS}{len(lengths)}"), IntList):
        rows: NDArray[np.int64] = stored.array(np.dtype(np.int64))
        if (rows < 0).any() or rows.max(initial=0) > 1 << 40:
            raise ValueError("a row length is negative or too large")
        if lengths and len(rows) != lengths[-1].sum():
            raise ValueError(f"{len(rows)} row lengths for {lengths[-1].sum()} rows")
        lengths.append(rows)
    if not lengths:
        raise ValueError("ragged values without row lengths")
    return tuple(lengths)


def row_shape(column: Column, leaf: Leaf | None, rows: int, count: int) -> tuple[int, ...]:
    """Shape of one of the rows that `count` values make.

    As declared, with at most one dimension that the count has to tell; without a declaration [n],
    or () where n = 1.

    Raises:
        EpisodeError: they do not make the rows.
    """
    declared = leaf.shape if leaf else ((None,) if count != rows else ())
    known = math.prod(size for size in declared if size is not None)
    free = [place for place, size in enumerate(declared) if size is None]
    whole = known * rows
    if len(free) > 1 or whole <= 0 or count == 0 or count % whole or (not free and count != whole):
        raise EpisodeError(
            f"{count} values do not make {rows} rows of shape"
            f" {tuple('?' if size is None else size for size in declared)}",
            reason="wrong-count",
            stream=column.name,
        )
    return tuple(count // whole if size is None else size for size in declared)


def count_steps(columns: list[Column]) -> int:
    """T: by the step flags, else by reward or discount, else by what holds text or pictures.

    Raises:
        EpisodeError: no steps, or nothing has one value per step.
    """
    steps = {c.name.removeprefix(STEPS): c for c in columns if c.is_per_step}
    if not steps:
        names = ", ".join(column.name for column in columns[:5]) or "nothing"
        raise EpisodeError(
            f"a record without steps (it holds {names}): not an episode", reason="no-steps"
        )
    for name in _COUNTED:
        if name in steps and not steps[name].row_lengths and len(steps[name].values):
            return len(steps[name].values)
    counts = [len(c.row_lengths[0]) for c in steps.values() if c.row_lengths]
    counts += [len(c.values) for c in steps.values() if isinstance(c.values, list)]
    counts = [count for count in counts if count]
    if not counts:
        raise EpisodeError(
            "neither flags nor text nor pictures: the number of steps is not known",
            reason="unknown-length",
        )
    return max(set(counts), key=lambda count: (counts.count(count), -count))
