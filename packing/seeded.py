"""Random choices that come out the same on every machine and under every numpy.

numpy promises the streams of its bit generators and of SeedSequence for ever, but not those of
`Generator.permutation` and its like; so only raw 64-bit words and integer arithmetic are used.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

STREAM_RUNS: Final = 1
STREAM_JITTER: Final = 2
STREAM_STEPS: Final = 3
STREAM_SLOTS: Final = 4
STREAM_REFERENCE: Final = 5
STREAM_PACKS: Final = 6
STREAM_SAMPLE: Final = 7


def random_words(n: int, *key: int) -> NDArray[np.uint64]:
    """uint64 [n], a function of the key alone (seed, stream, epoch, ...)."""
    words = np.random.PCG64(np.random.SeedSequence(key)).random_raw(n)
    return np.asarray(words, np.uint64)


def permutation(n: int, *key: int) -> NDArray[np.int64]:
    """A uniform permutation of range(n), int64 [n], a function of the key alone."""
    return np.argsort(random_words(n, *key), kind="stable").astype(np.int64, copy=False)
