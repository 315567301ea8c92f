"""Which frames of a video file belong to an episode, and which of them each step shows.

Always by frame number: stored times are floats (float32 in the rows, double in the episode list,
rational in the file) that agree only nearly, and a first timestamp of 0.05 s with a video that
starts at 0 is met in real data.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class FrameRange:
    """Frames [first, stop) of a file that an episode may use.

    Attributes:
        first, stop: frame numbers in display order; first == stop where there is none.
        offset_s: distance between the declared start and the first frame, in seconds.
    """

    first: int
    stop: int
    offset_s: float = 0.0


def frame_range(
    frame_pts: NDArray[np.int64],
    time_base: Fraction,
    from_s: float,
    next_from_s: float | None,
) -> FrameRange:
    """Frames between an episode's declared start and that of the next episode in the file.

    Args:
        frame_pts: int64 [F], ascending, the file's own times in ticks.
        time_base: seconds per tick.
        from_s: declared start. The file's first frame counts as time 0, wherever its pts begin.
        next_from_s: declared start of the next episode in the same file, None for the last.
    """
    ticks = frame_pts - frame_pts[0]
    first = _nearest(ticks, time_base, from_s)
    stop = len(ticks) if next_from_s is None else _nearest(ticks, time_base, next_from_s)
    offset = 0.0
    if first < len(ticks):
        offset = from_s - float(int(ticks[first]) * time_base)
    return FrameRange(first=first, stop=max(first, stop), offset_s=offset)


def frame_period_s(frame_pts: NDArray[np.int64], time_base: Fraction) -> float | None:
    """Median distance between frames in seconds, None for a single frame."""
    if len(frame_pts) < 2:
        return None
    return float(np.median(np.diff(frame_pts))) * float(time_base)


def frame_numbers(
    frame_index: NDArray[np.int64] | None, num_steps: int, supply: int
) -> NDArray[np.int32]:
    """Frame shown by each step, counted from the episode's first frame; -1 where there is none.

    Step k shows the frame that its `frame_index` names, also where rows were removed or stand in
    another order; and frame k where `frame_index` cannot be right, since it repeats a number or
    names frames that neither the video nor the number of steps has.

    Args:
        frame_index: int64 [T] as recorded, or None.
        num_steps: T.
        supply: frames that the episode has.
    """
    numbers = np.arange(num_steps, dtype=np.int64)
    if (
        frame_index is not None
        and frame_index.min() >= 0
        and frame_index.max() < max(supply, num_steps)
        and len(np.unique(frame_index)) == num_steps
    ):
        numbers = frame_index
    return np.where(numbers < supply, numbers, -1).astype(np.int32)


def _nearest(ticks: NDArray[np.int64], time_base: Fraction, at_s: float) -> int:
    """Number of the frame nearest to a time; F where the time is past the last frame's end."""
    at = at_s / float(time_base)
    after = int(np.searchsorted(ticks, at))
    if after == len(ticks):
        period = float(np.median(np.diff(ticks))) if len(ticks) > 1 else 1.0
        return after if at - ticks[-1] > period / 2 else after - 1
    if after > 0 and at - ticks[after - 1] < ticks[after] - at:
        return after - 1
    return after
