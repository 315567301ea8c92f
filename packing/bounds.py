"""Lower bounds on the number of packs, and the certificate built on them.

L2 of S. Martello and P. Toth, "Lower bounds and reduction procedures for the bin packing problem",
Discrete Applied Mathematics 28 (1990): for a threshold a, items above budget - a need a pack each,
so does each above half the budget, and what of the items in [a, budget / 2] does not fit beside
the latter needs packs of its own. Evaluated on a histogram, for every a that matters.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from packing.certificate import Certificate
from packing.packs import Load
from packing.seeded import chunks


def l2_bound(histogram: NDArray[np.int64], limit: int) -> int:
    """The least number of packs of `limit` for `histogram[size]` items of each size.

    Of the thresholds only the sizes that occur, up to half the limit, and the half itself matter:
    between two of them the items from the threshold on stay the same, while more of those above
    half the limit lose the room beside them.

    Args:
        histogram: int64 [M + 1], M at most the limit.
        limit: what a pack holds.
    """
    sizes = np.flatnonzero(histogram)
    half = limit // 2
    threshold = np.append(sizes[sizes <= half], half)
    # count[i], total[i]: items of the i smallest sizes, and the sum of their sizes.
    count = np.concatenate([[0], np.cumsum(histogram[sizes])])
    total = np.concatenate([[0], np.cumsum(histogram[sizes] * sizes)])
    beyond_half = np.searchsorted(sizes, half, side="right")
    beyond = np.searchsorted(sizes, limit - threshold, side="right")
    large = count[-1] - count[beyond]
    medium = count[beyond] - count[beyond_half]
    room = medium * limit - (total[beyond] - total[beyond_half])
    small = total[beyond_half] - total[np.searchsorted(sizes, threshold)]
    more = np.maximum(0, -((room - small) // limit))
    return int((large + medium + more).max())


def certify(
    loads: Sequence[Load], packs: int, counts: NDArray[np.int64] | None = None
) -> Certificate:
    """Certificate of a packing: L2 in every limited dimension, and the largest of them.

    A packing that respects several limits respects each, so every single dimension's bound holds.

    Args:
        loads: limited dimensions, tokens first.
        packs: non-empty packs used.
        counts: int64 [n], how often each span was packed; once each where None.
    """
    bounds = {load.name: l2_bound(_histogram(load, counts), load.limit) for load in loads}
    # Tokens first among equals: a cap binds only where its bound is the larger.
    binding = max(bounds, key=lambda name: (bounds[name], name == "tokens"))
    return Certificate(packs=packs, bound=bounds[binding], binding=binding, bounds=bounds)


def _histogram(load: Load, counts: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Up to the largest size, for a cap may be far beyond it."""
    largest = int(load.per_span.max(initial=0))
    histogram = np.zeros(largest + 1, np.int64)
    for part in chunks(len(load.per_span)):
        if counts is None:
            histogram += np.bincount(load.per_span[part], minlength=largest + 1)
        else:
            np.add.at(histogram, load.per_span[part], counts[part])
    return histogram
