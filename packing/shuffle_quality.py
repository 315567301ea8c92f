"""How well a plan is shuffled: diversity of episodes over k steps, and near-duplicates in a step.

The exponential of the entropy of the episodes among some spans is the number of episodes that,
equally represented, would be as diverse. It is divided by that of a uniform permutation of the
same spans, so that 1 means "as good as a global shuffle" for any mixture of episode lengths. One
step alone hides runs and blocks; therefore several k are reported.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from packing.seeded import STREAM_REFERENCE, permutation
from packing.spans import Int64s

WINDOWS_OF_STEPS: Final = (1, 4, 16, 64)
NEAR_STEPS: Final = 8
_MAX_WINDOWS: Final = 2048


def episode_diversity(
    step: Int64s, episode: Int64s, seed: int, windows: Sequence[int] = WINDOWS_OF_STEPS
) -> dict[int, float]:
    """Q_k for each k that does not exceed the number of steps.

    Args:
        step: int64 [n], step in which each span is consumed, ascending.
        episode: int64 [n], its episode.
        seed: of the uniform permutation compared with.
        windows: the values of k.

    Returns:
        k -> mean over windows of k steps of exp(entropy), over the same of the permutation.
    """
    if not len(step):
        return {}
    uniform = episode[permutation(len(episode), seed, STREAM_REFERENCE)]
    steps = int(step[-1]) + 1
    quality: dict[int, float] = {}
    for k in windows:
        whole = steps // k
        if whole == 0:
            continue
        # Evenly spread windows; all of them where there are few.
        chosen = np.unique(np.linspace(0, whole - 1, min(whole, _MAX_WINDOWS)).astype(np.int64))
        number = np.full(whole + 1, -1, np.int64)
        number[chosen] = np.arange(len(chosen))
        window = number[np.minimum(step // k, whole)]
        inside = window >= 0
        ours, best = (
            _mean_exp_entropy(window[inside], of[inside], len(chosen)) for of in (episode, uniform)
        )
        quality[k] = ours / best
    return quality


def _mean_exp_entropy(window: Int64s, episode: Int64s, windows: int) -> float:
    """Mean over the windows that hold a span of exp(entropy of the episodes)."""
    episodes = int(episode.max()) + 1
    pairs, counts = np.unique(window * episodes + episode, return_counts=True)
    total = np.bincount(window, minlength=windows)
    c_log_c = np.bincount(pairs // episodes, weights=counts * np.log(counts), minlength=windows)
    filled = total > 0
    entropy = np.log(total[filled]) - c_log_c[filled] / total[filled]
    return float(np.exp(entropy).mean())


def near_duplicates(step: Int64s, episode: Int64s, position: Int64s) -> float:
    """Share of spans with another of the same episode less than 8 steps away in the same step.

    Args:
        step: int64 [n], step in which each span is consumed.
        episode: int64 [n].
        position: int64 [n], last observed step of the span in its episode.
    """
    if not len(step):
        return 0.0
    order = np.lexsort((position, episode, step))
    close = (
        (np.diff(step[order]) == 0)
        & (np.diff(episode[order]) == 0)
        & (np.diff(position[order]) < NEAR_STEPS)
    )
    near = np.zeros(len(step), np.bool_)
    near[1:] |= close
    near[:-1] |= close
    return float(near.mean())
