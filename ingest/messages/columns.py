"""Values of the messages of one channel, by path, gathered block by block."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MOST_ELEMENTS: Final = 16_384
"""Values at one path of one message, beyond which they are no signal: point clouds, maps."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Messages in their order.

    Attributes:
        decoded: bool [n], which of them could be read.
        values: path -> [k, *shape] of those that could, numbers or an object array of str.
        refused: path -> why its values are no signal.
        damage: of the first message that could not be read, "" where all could.
    """

    decoded: NDArray[np.bool_]
    values: Mapping[str, NDArray[Any]]
    refused: Mapping[str, str] = field(default_factory=dict)
    damage: str = ""


@dataclass(kw_only=True)
class Columns:
    """Blocks that are joined at the end."""

    blocks: list[Block] = field(default_factory=list)

    def join(self) -> Block:
        """All blocks as one.

        A path that is refused in one block, that has another shape or type, or that is not in every
        message, is refused.
        """
        there = [block for block in self.blocks if block.decoded.any()]
        refused = {path: why for block in there for path, why in block.refused.items()}
        values: dict[str, NDArray[Any]] = {}
        for path in dict.fromkeys(path for block in there for path in block.values):
            if path in refused:
                continue
            parts = [block.values[path] for block in there if path in block.values]
            shapes = sorted({part.shape[1:] for part in parts})
            kinds = sorted({part.dtype.name for part in parts})
            if len(parts) < len(there):
                refused[path] = "is not in every message"
            elif len(shapes) > 1:
                refused[path] = f"changes its shape from message to message: {_few(shapes)}"
            elif len(kinds) > 1:
                refused[path] = f"changes its type from message to message: {', '.join(kinds)}"
            else:
                values[path] = np.concatenate(parts) if len(parts) > 1 else parts[0]
        decoded = [block.decoded for block in self.blocks]
        return Block(
            decoded=np.concatenate(decoded) if decoded else np.zeros(0, np.bool_),
            values=values,
            refused=refused,
            damage=next((block.damage for block in self.blocks if block.damage), ""),
        )


def _few(shapes: list[tuple[int, ...]]) -> str:
    shown = ", ".join(str(list(shape)) for shape in shapes[:3])
    return shown + (f" and {len(shapes) - 3} more" if len(shapes) > 3 else "")
