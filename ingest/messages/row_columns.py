"""Values of messages that are decoded one by one (Protobuf, JSON) as columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.messages.columns import MOST_ELEMENTS, Block, Columns

_BLOCK_MESSAGES: Final = 2048
_BLOCK_BYTES: Final = 4 << 20
_TIMES: Final[Mapping[type, str]] = {np.datetime64: "M8[ns]", np.timedelta64: "m8[ns]"}
_EXACT: Final = 1 << 53  # beyond it float64 skips whole numbers


@dataclass(kw_only=True)
class RowColumns:
    """Gathers the payloads of a channel.

    Attributes:
        fields: of one message: path -> number, text, bytes, or (nested) list of those; raises
            EpisodeError for what it cannot read.
        dtypes: path -> numpy's name of the type, where it is declared.
    """

    fields: Callable[[bytes], Mapping[str, Any]]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    _rows: list[Mapping[str, Any] | None] = field(default_factory=list)
    _bytes: int = 0
    _damage: str = ""
    _columns: Columns = field(default_factory=Columns)

    def add(self, payload: bytes) -> None:
        """Take the next message."""
        try:
            self._rows.append(self.fields(payload))
        except EpisodeError as error:
            self._rows.append(None)
            self._damage = self._damage or str(error)
        self._bytes += len(payload)
        if self._bytes >= _BLOCK_BYTES or len(self._rows) >= _BLOCK_MESSAGES:
            self._pack()

    def join(self) -> Block:
        """All values."""
        if self._rows:
            self._pack()
        return self._columns.join()

    def _pack(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        there = [row for row in rows if row is not None]
        values: dict[str, NDArray[Any]] = {}
        refused: dict[str, str] = {}
        for path in dict.fromkeys(path for row in there for path in row):
            column = [row[path] for row in there if path in row]
            if len(column) < len(there):
                refused[path] = "is not in every message"
                continue
            try:
                values[path] = as_array(column, self.dtypes.get(path))
            except ValueError as error:
                refused[path] = str(error)
        decoded = np.array([row is not None for row in rows], np.bool_)
        self._columns.blocks.append(
            Block(decoded=decoded, values=values, refused=refused, damage=self._damage)
        )


def as_array(column: list[Any], dtype: str | None) -> NDArray[Any]:
    """[n, *shape] of numbers, or an object array of texts.

    Numbers of no declared type are float64, int64 where float64 would round them, or bool; None
    among floats is NaN.

    Raises:
        ValueError: the reason why they make no array.
    """
    if isinstance(column[0], bytes):
        if len({len(data) for data in column}) > 1:
            raise ValueError("changes its length from message to message")
        _check_size(len(column[0]))
        return np.frombuffer(b"".join(column), np.uint8).reshape(len(column), -1)
    found = np.array(column, object)
    if any(isinstance(value, (list, dict)) for value in found.flat):
        raise ValueError("changes its shape from message to message, or has lists in lists")
    _check_size(found[0].size if found.ndim > 1 else 1)
    if not found.size:
        return np.zeros(found.shape, dtype or "float64")
    kinds = {type(value) for value in found.flat}
    if len(kinds) == 1 and (time := _TIMES.get(next(iter(kinds)))):
        return found.astype(time)
    if kinds == {str}:
        return found
    if str in kinds:
        raise ValueError("is text in some messages and not in others")
    if dtype is None:
        dtype = _inferred(found, kinds)
    elif type(None) in kinds and not dtype.startswith("float"):
        raise ValueError(f"is null in some messages, and {dtype} in others")
    try:
        return found.astype(dtype)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"is no {dtype} ({error})") from error


def _check_size(elements: int) -> None:
    if elements > MOST_ELEMENTS:
        raise ValueError(f"has {elements} values in a message, more than {MOST_ELEMENTS}")


def _inferred(found: NDArray[Any], kinds: set[type]) -> str:
    if kinds <= {bool, np.bool_}:
        return "bool"
    if kinds == {int} and max(abs(value) for value in found.flat) > _EXACT:
        return "int64"
    return "float64"
