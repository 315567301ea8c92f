"""A batch as it reaches the consumer's process."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loader.bad_spans import BadSpan


@dataclass(frozen=True, kw_only=True)
class Received:
    """Memory that holds one batch (see `loader.wire`) and what the loader counts of it.

    Attributes:
        position: which pack of the rank.
        memory: uint8 [capacity]; the buffer is used again once nothing refers to this array.
        spans, steps: spans and observed steps in it.
        bad: its bad spans.
    """

    position: int
    memory: NDArray[np.uint8]
    spans: int
    steps: int
    bad: tuple[BadSpan, ...] = ()
