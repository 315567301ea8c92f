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
        repetitions: timed rounds.
        skip: packs of windows before the timed ones; None for as many as a run lasts.
        packs: of windows timed per round.
        others_skip: batches of other loaders before the timed ones.
        others_packs: batches of other loaders timed per round.
        two_workers: whether `Window` is also read by two workers.
        trajectory_episodes: streamed as whole trajectories.
        training_steps: of 50 ms, for the share of waiting.
        delays_ms: of the object store.
        s3_repetitions: rounds over local disk and the object store.
        starts: fresh processes per process mode.
        warm_up: whether trajectories have an untimed round.
    """

    episodes: Mapping[Coding, int]
    picture: tuple[int, int] = (240, 320)
    repetitions: int
    skip: int | None
    packs: int
    others_skip: int
    others_packs: int
    two_workers: bool = True
    trajectory_episodes: int
    training_steps: int
    delays_ms: tuple[int, ...] = DELAYS_MS
    s3_repetitions: int
    starts: int
    warm_up: bool


FULL: Final = LoaderBench(
    episodes={H264: 300, H264_GOP30: 300, AV1: 120},
    repetitions=5,
    skip=None,
    packs=96,
    others_skip=8,
    others_packs=24,
    trajectory_episodes=20,
    training_steps=200,
    s3_repetitions=5,
    starts=5,
    warm_up=True,
)
# Its streams are timed while they still decode ahead more than they use: a little too slow.
QUICK: Final = LoaderBench(
    episodes={H264: 130, H264_GOP30: 150, AV1: 16},
    repetitions=3,
    skip=16,
    packs=12,
    others_skip=2,
    others_packs=8,
    two_workers=False,
    trajectory_episodes=3,
    training_steps=40,
    delays_ms=(20,),
    s3_repetitions=2,
    starts=1,
    warm_up=False,
)
