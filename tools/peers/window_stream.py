"""Window samples out of whole episodes: decoded in a row, shuffled in a buffer.

The way in which stream formats deliver windows of video that is not encoded anew: every frame is
decoded once, and how well samples are shuffled is a matter of memory.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from tools.peers.episode_files import action_chunk, decode

SHUFFLE_BUFFER: Final = 1000  # samples per worker; one of two 320x240 pictures is 0.46 MB

Sample = dict[str, Any]


def windows(
    episode: int,
    state: NDArray[np.float32],
    action: NDArray[np.float32],
    videos: dict[str, tuple[bytes, int]],
    chunk: int,
) -> Iterator[Sample]:
    """Every window of an episode; `videos` has MP4 and leading frames of each camera."""
    frames = [decode(video, first, len(state)) for video, first in videos.values()]
    for step, pictures in enumerate(zip(*frames, strict=True)):
        yield sample(
            episode,
            step,
            state[step],
            action_chunk(action, step, chunk),
            dict(zip(videos, pictures, strict=True)),
        )


def sample(
    episode: int,
    step: int,
    state: NDArray[np.float32],
    actions: NDArray[np.float32],
    pictures: dict[str, NDArray[np.uint8]],
) -> Sample:
    """A window as tensors; pictures stay [h, w, 3] as they were decoded."""
    return {
        "episode_index": episode,
        "frame_index": step,
        "state": torch.from_numpy(np.array(state)),
        "action": torch.from_numpy(np.array(actions)),
        **{name: torch.from_numpy(picture) for name, picture in pictures.items()},
    }


def shuffled(samples: Iterable[Sample], size: int, seed: int) -> Iterator[Sample]:
    """Draw each sample at random from a buffer that is full first."""
    rng = random.Random(seed)  # noqa: S311  # no secret
    held: list[Sample] = []
    for one in samples:
        if len(held) < size:
            held.append(one)
            continue
        place = rng.randrange(size)
        drawn, held[place] = held[place], one
        yield drawn
    rng.shuffle(held)
    yield from held


def samples_of(batch: Any) -> tuple[list[int], list[int]]:  # noqa: ANN401  # a collated dict
    """Episodes and steps of a batch."""
    return batch["episode_index"].tolist(), batch["frame_index"].tolist()
