"""Runs: windows in a row whose pictures a decoder decodes together.

A group of pictures is decoded from its key frame on. Where two runs share one, it is decoded for
both; so a run is a whole number of groups, near a wished length. A group that is much longer than
that is divided into n equal runs, each of which decodes the group up to its own end: (n + 1) / 2
frames for each that is shown. Longer runs would decode less and keep more: of every open run the
frames that it has yet to show, in the mean half a run's, and what memory cannot keep is decoded
again.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from packing.spans import Int64s, Spans

RUN_LENGTH: Final = 8
"""Windows of a run, about."""


def cut_runs(groups: NDArray[np.bool_], step_offsets: Int64s, run_steps: int) -> NDArray[np.bool_]:
    """Where runs begin, bool [sum T].

    Groups longer than one and a half times `run_steps` are divided into the fewest equal parts
    that are not, a run each. Of the others of an episode as many are a run as come nearest to
    `run_steps` in the mean, at least one.

    Args:
        groups: bool [sum T], steps that show the first picture of a group; the first step of an
            episode begins one anyway.
        step_offsets: int64 [E+1], where each episode's steps begin.
        run_steps: at least 1.
    """
    begins = groups.copy()
    begins[step_offsets[:-1][np.diff(step_offsets) > 0]] = True
    start = np.flatnonzero(begins)
    if not len(start):
        return begins
    length = np.diff(np.append(start, len(begins)))
    parts = -(-length // max(run_steps * 3 // 2, 1))
    whole = parts == 1
    first = np.searchsorted(start, step_offsets)
    count, steps = (
        np.diff(np.concatenate([[0], np.cumsum(values)])[first])
        for values in (whole, np.where(whole, length, 0))
    )
    # Rounded to the nearest number of groups, all in integers.
    together = np.maximum((2 * run_steps * count + steps) // np.maximum(2 * steps, 1), 1)
    counted_from = ~whole
    counted_from[1:] |= ~whole[:-1]
    counted_from[first[:-1][np.diff(first) > 0]] = True
    at = np.flatnonzero(counted_from)
    nth = np.arange(len(start)) - np.repeat(at, np.diff(np.append(at, len(start))))
    begins[start[nth % np.repeat(together, np.diff(first)) != 0]] = False
    more = parts - 1
    of = np.repeat(np.arange(len(start)), more)
    part = np.arange(len(of)) - np.repeat(np.cumsum(more) - more, more) + 1
    begins[start[of] + -(-part * length[of] // parts[of])] = True
    return begins


def runs_of(spans: Spans, begins: NDArray[np.bool_], step_offsets: Int64s) -> Int64s:
    """Number the runs, int64 [n], ascending from 0: spans whose last observed steps share one.

    Args:
        spans: ordered by episode and step.
        begins: bool [sum T], see `cut_runs`.
        step_offsets: int64 [E+1], where each episode's steps begin.
    """
    if not len(spans):
        return np.zeros(0, np.int64)
    number = np.cumsum(begins, dtype=np.int32 if len(begins) < 1 << 31 else np.int64)
    stretch = number[step_offsets[spans.episode] + spans.stop - 1]
    return np.asarray(np.cumsum(np.diff(stretch, prepend=stretch[:1]) != 0, dtype=np.int64))
