"""The task: touch the block of the named colour first, from a random start."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.simulation.errors import SimulationError

COLOURS: Final[dict[str, tuple[float, float, float]]] = {
    "red": (0.85, 0.10, 0.10),
    "green": (0.10, 0.65, 0.15),
    "blue": (0.10, 0.20, 0.90),
    "yellow": (0.95, 0.85, 0.10),
}
"""Colour name -> RGB in [0, 1]; a scene uses the first `SceneConfig.num_blocks` of them."""

WORKSPACE_M: Final = 0.30
"""Half the side of the square that the tip can reach, metres."""

BLOCK_HALF_M: Final = 0.04
"""Half the side of a block, metres."""

TRAVEL_HEIGHT_M: Final = 0.17
"""Height of the tip at the start and while it travels, metres above the table."""

_BLOCK_REACH_M: Final = WORKSPACE_M - 0.06
_BLOCK_SPACING_M: Final = 0.15
_START_CLEARANCE_M: Final = 0.06


class Purpose(Enum):
    """What starts are drawn for; each purpose has its own random stream.

    Starts of one purpose never recur in another, whatever the seeds: demonstrations cannot leak
    into the assessment that steers development, nor that into the final exam.
    """

    RECORD = 0
    ASSESS = 1
    EXAM = 2


@dataclass(frozen=True, kw_only=True)
class SceneConfig:
    """What can be chosen about the scene.

    Attributes:
        num_blocks: blocks on the table, each of its own colour, 1 to 4.
        image_size: height and width of every picture, pixels.
        control_hz: actions per second.
        max_steps: actions after which an episode has failed.
    """

    num_blocks: int = 3
    image_size: int = 64
    control_hz: int = 10
    max_steps: int = 80

    def __post_init__(self) -> None:
        if not 1 <= self.num_blocks <= len(COLOURS):
            raise SimulationError(f"num_blocks is {self.num_blocks}; use 1 to {len(COLOURS)}")
        if not 16 <= self.image_size <= 512:
            raise SimulationError(f"image_size is {self.image_size} pixels; use 16 to 512")
        if not 1 <= self.control_hz <= 100 or self.max_steps < 1:
            raise SimulationError("use a control_hz of 1 to 100 and at least one step")

    @property
    def colours(self) -> tuple[str, ...]:
        """Names of the colours on the table."""
        return tuple(COLOURS)[: self.num_blocks]


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: where everything lies and what is asked.

    Attributes:
        blocks: float64 [num_blocks, 3]: x and y in metres, turn about the vertical in radians.
        tip: float64 [3], position of the tip in metres.
        target: index of the block to touch.
        speed_m_s: speed at which the expert travels.
        instruction: the request in words.
    """

    blocks: NDArray[np.float64]
    tip: NDArray[np.float64]
    target: int
    speed_m_s: float
    instruction: str

    def __post_init__(self) -> None:
        if self.blocks.ndim != 2 or self.blocks.shape[1] != 3 or self.tip.shape != (3,):
            raise SimulationError(
                f"a start needs blocks [n, 3] and tip [3], not {self.blocks.shape} and"
                f" {self.tip.shape}"
            )
        if not 0 <= self.target < len(self.blocks):
            raise SimulationError(f"target {self.target} of {len(self.blocks)} blocks")


def instruction_for(colour: str) -> str:
    """The sentence that asks for the block of this colour."""
    return f"go to the {colour} block"


def sample_start(config: SceneConfig, purpose: Purpose, seed: int, episode: int) -> Start:
    """Draw the start of one episode; the same arguments give the same start on any machine.

    Targets go round in order, so every instruction is asked equally often.
    """
    rng = np.random.default_rng([purpose.value, seed, episode])
    tip_xy = rng.uniform(-WORKSPACE_M, WORKSPACE_M, 2)
    places: list[NDArray[np.float64]] = []
    while len(places) < config.num_blocks:
        place = rng.uniform(-_BLOCK_REACH_M, _BLOCK_REACH_M, 2)
        clear_of_tip = float(np.hypot(*(place - tip_xy))) > BLOCK_HALF_M + _START_CLEARANCE_M
        if clear_of_tip and all(np.hypot(*(place - p)) > _BLOCK_SPACING_M for p in places):
            places.append(place)
    turns = rng.uniform(-np.pi / 4, np.pi / 4, config.num_blocks)
    target = episode % config.num_blocks
    return Start(
        blocks=np.column_stack([np.array(places), turns]),
        tip=np.array([*tip_xy, TRAVEL_HEIGHT_M]),
        target=target,
        speed_m_s=float(rng.uniform(0.08, 0.24)),
        instruction=instruction_for(config.colours[target]),
    )
