"""How much the loader bench measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tools.bench.loader_data import AV1, H264, H264_GOP30, Coding
from tools.bench.loader_s3 import DELAYS_MS


@dataclass(frozen=True, kw_only=True)
class LoaderBench:
    """How much is measured.

    Attributes:
        episodes: coding -> episodes of its dataset, about 225 steps each.
        picture: (height, width) of the pictures.
        everyone: whether contenders that no aim names are measured too: windows as YUV, more plain
            loops, `Window` with workers and of every coding, materialised packs from the object
            store, starting in process.
        repetitions: timed rounds.
        most_skip: windows are timed after as many packs as a run lasts, or this many.
        stretches: of every stream of windows that are timed one after the other.
        packs: of windows per stretch.
        others_skip: batches of other loaders before the timed ones.
        others_packs: batches of other loaders timed per round.
        trajectory_episodes: streamed as whole trajectories.
        trajectory_repetitions: timed rounds of them.
        training_steps: of 50 ms, for the share of waiting.
        delays_ms: of the object store.
        s3_packs: of windows timed from the object store, after as many untimed ones.
        s3_repetitions: rounds over local disk and the object store.
        starts: fresh processes per process mode.
        warm_up: whether trajectories have an untimed round.
    """

    episodes: Mapping[Coding, int]
    picture: tuple[int, int] = (240, 320)
    everyone: bool = True
    repetitions: int
    most_skip: int = 256
    stretches: int = 1
    packs: int
    others_skip: int
    others_packs: int
    trajectory_episodes: int
    trajectory_repetitions: int
    training_steps: int
    delays_ms: tuple[int, ...] = DELAYS_MS
    s3_packs: int
    s3_repetitions: int
    starts: int
    warm_up: bool


FULL: Final = LoaderBench(
    episodes={H264: 300, H264_GOP30: 300, AV1: 120},
    repetitions=5,
    packs=96,
    others_skip=8,
    others_packs=24,
    trajectory_episodes=40,
    trajectory_repetitions=5,
    training_steps=200,
    s3_packs=96,
    s3_repetitions=5,
    starts=5,
    warm_up=True,
)
# Stretches of one stream take the place of rounds: what comes before them would take too long.
QUICK: Final = LoaderBench(
    episodes={H264: 110, H264_GOP30: 60, AV1: 7},
    everyone=False,
    repetitions=1,
    most_skip=80,
    stretches=3,
    packs=8,
    others_skip=2,
    others_packs=8,
    trajectory_episodes=4,
    trajectory_repetitions=2,
    training_steps=60,
    delays_ms=(20,),
    s3_packs=40,
    s3_repetitions=1,
    starts=1,
    warm_up=False,
)
