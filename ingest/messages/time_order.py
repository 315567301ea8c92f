"""Messages whose file holds them in another order than the recorder got them.

Chunks of a log may lie in any order. That is told from a clock that was set back by the pieces in
which time only moves on: chunks do not overlap in time, what was recorded after a clock was set
back does.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.timing import RESET_NS
from ingest.timed import TimedCamera, TimedValues

_Stream = TypeVar("_Stream", TimedValues, TimedCamera)


def as_recorded(stream: _Stream) -> _Stream | None:
    """A stream whose log times jump back in the file, in the order of its recording.

    Returns:
        None where they do not, or where nobody knows the order.
    """
    order = _order(stream.clocks["log"])
    if order is None:
        return None
    clocks = {name: stamps[order] for name, stamps in stream.clocks.items()}
    if isinstance(stream, TimedValues):
        return replace(stream, clocks=clocks, values=stream.values[order])
    index = replace(stream.video.index, step_to_frame=stream.video.index.step_to_frame[order])
    return replace(stream, clocks=clocks, video=replace(stream.video, index=index))


def _order(log: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Numbers of messages, int64 [n], of log times in the order of the file."""
    jumps = np.flatnonzero(np.diff(log) < -RESET_NS) + 1
    if not jumps.size:
        return None
    begins = np.concatenate([[0], jumps])
    first = np.minimum.reduceat(log, begins)
    last = np.maximum.reduceat(log, begins)
    order = np.argsort(first, kind="stable")
    if (first[order][1:] < last[order][:-1]).any():
        return None
    pieces = np.split(np.arange(len(log)), jumps)
    return np.concatenate([pieces[piece] for piece in order])
