"""A scripted expert that knows where the blocks are."""

import numpy as np
from numpy.typing import NDArray

from training.simulation.scene import Observation, Scene
from training.simulation.task import BLOCK_HALF_M, TRAVEL_HEIGHT_M

_TOUCH_HEIGHT_M = 2 * BLOCK_HALF_M - 0.01
_DESCENT_RADIUS_M = 0.03
_DESCENT_SLOPE = 2.0


def expert_action(scene: Scene, observation: Observation, *, target: int) -> NDArray[np.float64]:
    """Displacement of the set-point, float64 [3] in metres, for the next control period.

    Travels straight towards block `target` at the start's speed, high above the others, and
    comes down on it in a cone. A function of what is there now alone, without a plan, so that
    every visited state shows what to do from it.
    """
    goal = scene.block_positions()[target]
    tip = observation.state.astype(np.float64)
    offset = goal[:2] - tip[:2]
    distance = float(np.hypot(*offset))
    reach = scene.start.speed_m_s / scene.config.control_hz
    advance = offset * min(1.0, reach / max(distance, 1e-9))
    left = max(0.0, distance - float(np.hypot(*advance)) - _DESCENT_RADIUS_M)
    height = min(_TOUCH_HEIGHT_M + _DESCENT_SLOPE * left, TRAVEL_HEIGHT_M)
    return np.array([*advance, np.clip(height - tip[2], -_DESCENT_SLOPE * reach, reach)])
