"""Turning between two rotations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def slerp(
    one: NDArray[Any], other: NDArray[Any], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rotations between pairs of quaternions at constant speed along the shorter arc.

    After K. Shoemake, "Animating rotation with quaternion curves", SIGGRAPH 1985. The order of
    the elements does not matter, so long as both have the same.

    Args:
        one: [n, 4] floats, of any length but 0.
        other: [n, 4] floats.
        share: float64 [n] in [0, 1], how far from `one` to `other`.

    Returns:
        float64 [n, 4] of length 1, on the side of `one` (q and -q are the same rotation); NaN
        where a quaternion is 0 or not finite.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = _unit(one), _unit(other)
        b = np.where((a * b).sum(axis=1, keepdims=True) < 0, -b, b)
        # Stable for small angles, where the arc cosine of a . b is not.
        half = np.arctan2(
            np.linalg.norm(a - b, axis=1, keepdims=True),
            np.linalg.norm(a + b, axis=1, keepdims=True),
        )
        angle, weight = 2 * half, share[:, None]
        arc = np.sin((1 - weight) * angle) * a + np.sin(weight * angle) * b
        straight = a + (b - a) * weight
        return _unit(np.where(angle > 1e-9, arc, straight))


def _unit(quaternion: NDArray[Any]) -> NDArray[np.float64]:
    wide = quaternion.astype(np.float64)
    unit: NDArray[np.float64] = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return unit
