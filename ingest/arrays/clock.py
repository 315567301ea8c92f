"""The step grid of formats that seldom store one."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.source import Finding

_NS: Final = 1_000_000_000
_MOST_NS: Final = 9e18  # of an int64


def step_times(
    num_steps: int,
    fps: float | None,
    recorded: NDArray[Any] | None,
    locator: str,
    unit_ns: int = _NS,
) -> tuple[NDArray[np.int64], list[Finding]]:
    """Times of the steps in integer nanoseconds.

    Recorded times are used where they increase; otherwise the grid is step / fps; and
    without a rate the steps are only numbered (0, 1, 2, ... ns), which is no time at all.

    Args:
        num_steps: T.
        fps: rate in steps per second, or None.
        recorded: stored stamps, [T], or None.
        locator: the episode, for findings.
        unit_ns: what one of them counts, in nanoseconds; whole numbers stay exact.
    """
    found: list[Finding] = []
    if recorded is not None and recorded.shape == (num_steps,) and recorded.dtype.kind in "fiu":
        as_float = recorded.astype(np.float64)
        fits = np.isfinite(as_float).all() and abs(as_float).max() < _MOST_NS / unit_ns
        if fits and (np.diff(as_float) > 0).all():
            if recorded.dtype.kind == "f":
                return np.rint(as_float * unit_ns).astype(np.int64), found
            return recorded.astype(np.int64) * unit_ns, found
        found.append(
            _finding(
                "unusable-timestamps",
                f"the stored stamps ({recorded.dtype}) are no times that increase from step to"
                " step; they are kept as a feature and not used as the grid",
                locator,
            )
        )
    if fps:
        return np.rint(np.arange(num_steps) * (_NS / fps)).astype(np.int64), found
    found.append(
        _finding(
            "no-clock",
            "the file stores neither times nor a rate: steps are numbered, not timed; give --fps",
            locator,
        )
    )
    return np.arange(num_steps, dtype=np.int64), found


def _finding(reason: str, detail: str, locator: str) -> Finding:
    return Finding(
        severity="warning",
        reason=reason,
        where=locator,
        detail=detail,
        episode=locator,
        stream="timestamps",
    )
