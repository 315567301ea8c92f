"""Text of an Example, and the instruction of an episode."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.rlds.columns import Column, row_shape
from ingest.rlds.features import Leaf

# In the order in which they are taken; Language Table writes `instruction` as code points.
_INSTRUCTIONS: Final = (
    *("language_instruction", "natural_language_instruction", "instruction"),
    *("language_instruction_2", "language_instruction_3"),
)
_MAX_CODE_POINT: Final = 0x10FFFF


def texts(values: Iterable[memoryview]) -> tuple[list[str], bool]:
    r"""Byte strings as text, and whether all were UTF-8; bytes that are not become `\x..`."""
    out, sound = [], True
    for value in values:
        data = bytes(value)
        try:
            out.append(data.decode())
        except UnicodeDecodeError:
            out.append(data.decode("utf-8", "backslashreplace"))
            sound = False
    return out, sound


def text_array(column: Column, leaf: Leaf | None, rows: int) -> tuple[NDArray[Any], bool]:
    """Text as an object array [rows, *shape], and whether all of it was UTF-8.

    Raises:
        EpisodeError: not byte strings, or not as many as the rows hold.
    """
    if not isinstance(column.values, list):
        raise EpisodeError("numbers where text is declared", reason="no-text", stream=column.name)
    strings, sound = texts(column.values)
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(rows, *row_shape(column, leaf, rows, len(strings))), sound


def instruction_of(features: Mapping[str, NDArray[Any]]) -> tuple[str | None, str, int]:
    """The episode's instruction, its source name, and how many different ones its steps have.

    Args:
        features: values by source name; an instruction may be text, or bytes or code points that
            end with the first 0 (uint8 or wider, [T, n]).
    """
    for wanted in _INSTRUCTIONS:
        for name, values in features.items():
            if name.rpartition("/")[2] != wanted:
                continue
            given = _strings(values)
            different = dict.fromkeys(text for text in given if text.strip())
            if different:
                return next(iter(different)), name, len(dict.fromkeys(given))
    return None, "", 0


def _strings(values: NDArray[Any]) -> list[str]:
    if values.dtype == object:
        return [str(row) for row in values.ravel()]
    if values.dtype.kind not in "iu" or values.ndim != 2:
        return []
    if values.dtype == np.uint8:
        return [row.tobytes().partition(b"\0")[0].decode("utf-8", "replace") for row in values]
    if values.min(initial=0) < 0 or values.max(initial=0) > _MAX_CODE_POINT:
        return []
    surrogates = (values >= 0xD800) & (values <= 0xDFFF)
    if surrogates.any():
        return []
    return ["".join(map(chr, row)).partition("\0")[0] for row in values.tolist()]
