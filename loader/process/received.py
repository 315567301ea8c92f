"""A batch as it reaches the consumer's process."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.bad_spans import BadSpan
from loader.batch import NumpyBatch
from loader.process.wire import read_batch


@dataclass(frozen=True, kw_only=True)
class Received:
    """Memory that holds one batch (see `loader.process.wire`) and what the loader counts of it.

    Attributes:
        position: which pack of the rank.
        memory: uint8 [capacity]; the buffer is used again once nothing refers to this array.
        spans, steps: spans and observed steps in it.
        bad: its bad spans.
        pictures: where they were decoded elsewhere than in the memory: a tensor per bucket.
    """

    position: int
    memory: NDArray[np.uint8]
    spans: int
    steps: int
    bad: tuple[BadSpan, ...] = ()
    pictures: tuple[Any, ...] = ()


def numpy_batch(received: Received) -> NumpyBatch:
    """The batch as arrays that keep its memory alive.

    Raises:
        BatchError: see `loader.process.wire.read_batch`.
    """
    return read_batch(received.memory)
