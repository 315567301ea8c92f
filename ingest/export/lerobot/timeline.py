"""Whether steps and frames of an episode fit LeRobot's clock, and where its packets go on it.

LeRobot looks a picture up by number: that of step k is frame `round((from_timestamp + k / fps) *
fps)` of its file, and its time must agree to 1e-4 s. So there is a frame for every step, each shown
1 / fps after the one before, and nothing else in between.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.export.errors import UnfitError
from lake.video_index import VideoIndex

_NS: Final = 1_000_000_000
_TOLERANCE_S: Final = 4e-5
"""Of a step's time. LeRobot allows 1e-4 s, of which it needs half for rounding to float32."""

MAX_FILE_S: Final = 512.0
"""Longest time of a file with several episodes. LeRobot compares times as float32, and refuses
pictures where their rounding exceeds its tolerance: none up to `MAX_EPISODE_S`, a few percent
beyond it (29.97 steps/s, or episodes of some minutes)."""

MAX_EPISODE_S: Final = 1024.0
"""Time in a file from which LeRobot refuses some pictures."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the packets of a camera go, in frames of 1 / fps counted from the episode's packets.

    Attributes:
        slots: int64 [P], when each packet is shown; packets stand in decode order.
        first: slot of the frame of step 0; those before are decoded on the way.
        leading: how many packets that no step needs are shown before the first one that is decoded:
            of an open group of pictures, whose own pictures come before.
        delay: frames by which decoding must run ahead of showing.
    """

    slots: NDArray[np.int64]
    first: int
    leading: int
    delay: int


def step_times(
    timestamps_ns: NDArray[np.int64], fps: float, recorded: NDArray[Any] | None
) -> NDArray[Any]:
    """Float [T]: the column `timestamp`: what LeRobot recorded, else seconds since step 0.

    Args:
        timestamps_ns: int64 [T].
        fps: steps per second.
        recorded: float [T] as LeRobot recorded it. In part of an episode it does not begin at 0,
            and is not used.

    Raises:
        UnfitError: `uneven-steps`: times are not k / fps.
    """
    if recorded is not None and fits_clock(recorded, fps):
        return recorded
    dtype = np.dtype(np.float32) if recorded is None else recorded.dtype
    seconds: NDArray[Any] = ((timestamps_ns - timestamps_ns[0]) / _NS).astype(dtype)
    wrong = _off_grid(seconds, fps)
    if len(wrong):
        step = int(wrong[0])
        raise UnfitError(
            f"step {step} comes {seconds[step]:.6f} s after the first, not {step} / {fps:g} ="
            f" {step / fps:.6f} s ({len(wrong)} of {len(seconds)} steps are off); LeRobot has"
            " steps of one length: ingest the recording aligned to a rate (--alignment with"
            " grid_fps)",
            reason="uneven-steps",
        )
    return seconds


def fits_clock(recorded: NDArray[Any], fps: float) -> bool:
    """Whether recorded times [T] are k / fps, as far as LeRobot would tell."""
    return not len(_off_grid(recorded, fps))


def _off_grid(seconds: NDArray[Any], fps: float) -> NDArray[np.intp]:
    on_grid = (np.arange(len(seconds)) / fps).astype(seconds.dtype)
    off = np.abs(seconds.astype(np.float64) - on_grid.astype(np.float64))
    return np.flatnonzero(~(off <= _TOLERANCE_S))


def place(camera: str, index: VideoIndex) -> Placement:
    """Where the packets of a video go.

    Raises:
        UnfitError: `missing-pictures`, `held-pictures`, `scattered-pictures`.
    """
    shown = check_shown(camera, index)
    steps = np.arange(len(shown), dtype=np.int64)
    if not np.array_equal(shown, shown[0] + steps):
        step = int(np.flatnonzero(shown != shown[0] + steps)[0])
        raise UnfitError(
            f"step {step} shows frame {shown[step]}, the step before {shown[step - 1]}: LeRobot has"
            " the next frame at the next step; ingest the recording aligned to this camera's"
            " frames (--alignment with grid)",
            reason="held-pictures",
            stream=camera,
        )
    count = len(index.packet_pts)
    slots = np.empty(count, np.int64)
    slots[np.argsort(index.packet_pts, kind="stable")] = np.arange(count)
    packet_of = np.full(int(index.packet_frame.max()) + 1, -1, np.int64)
    seen = np.flatnonzero(index.packet_frame >= 0)
    packet_of[index.packet_frame[seen]] = seen
    of_steps = slots[packet_of[shown]]
    if not np.array_equal(of_steps, of_steps[0] + steps):
        step = int(np.flatnonzero(of_steps != of_steps[0] + steps)[0])
        raise UnfitError(
            f"before step {step} there are pictures that no step shows, needed to decode those"
            " after, as in an episode that was merged; export its parts, or leave the camera out",
            reason="scattered-pictures",
            stream=camera,
        )
    first, leading = int(of_steps[0]), int(slots[0])
    return Placement(
        slots=slots,
        first=first,
        leading=leading if leading <= first else 0,
        delay=int((np.arange(count) - slots).max()),
    )


def check_shown(camera: str, index: VideoIndex) -> NDArray[np.int64]:
    """int64 [T], the frame of each step.

    Raises:
        UnfitError: `missing-pictures`: a step without.
    """
    shown = index.step_to_frame.astype(np.int64)
    missing = np.flatnonzero(shown < 0)
    if len(missing):
        raise UnfitError(
            f"there is no picture at {len(missing)} of {len(shown)} steps, first at step"
            f" {missing[0]}; LeRobot needs one at each: split these steps off, or leave the camera"
            " out",
            reason="missing-pictures",
            stream=camera,
        )
    return shown
