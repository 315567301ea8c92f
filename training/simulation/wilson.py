"""The interval that goes beside every success rate."""

import math
from statistics import NormalDist

from training.simulation.errors import SimulationError


def wilson_interval(
    successes: int, trials: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Wilson score interval of a proportion (Wilson 1927, without continuity correction).

    Unlike the normal approximation it stays inside [0, 1] and has width at 0 and at all
    successes, which is where small numbers of rollouts end.

    Args:
        successes: rollouts that succeeded, 0 to `trials`.
        trials: rollouts, at least 1.
        confidence: two-sided confidence in (0, 1).

    Returns:
        Lower and upper bound.

    Raises:
        SimulationError: counts or confidence out of range.
    """
    if trials < 1 or not 0 <= successes <= trials or not 0 < confidence < 1:
        raise SimulationError(
            f"no interval for {successes} of {trials} at confidence {confidence}: assess at least"
            " one episode"
        )
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    # At the ends the bounds are 0 and 1 exactly; rounding would leave 1e-17.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return low, high
