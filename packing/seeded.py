"""Random choices that come out the same on every machine and under every numpy.

numpy promises the streams of its bit generators and of SeedSequence for ever, but not those of
`Generator.permutation` and its like; so only raw 64-bit words and integer arithmetic are used.

To sort indices by a key, the key is put into the high bits of a word and the index into the low
ones. So all words differ, every sorting algorithm gives the same, and the fastest can be taken: the
words are sorted in place, by vector instructions where the processor has them.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32 | np.int64]
"""Indices: int32 where there are fewer than 2^31, which at 1e8 saves gigabytes."""
Words = NDArray[np.uint64]

STREAM_RUNS: Final = 1
STREAM_JITTER: Final = 2
STREAM_STEPS: Final = 3
STREAM_SLOTS: Final = 4
STREAM_REFERENCE: Final = 5
STREAM_PACKS: Final = 6
STREAM_SAMPLE: Final = 7
STREAM_LANES: Final = 8
STREAM_DECK: Final = 9
STREAM_PHASE: Final = 10

CHUNK: Final = 1 << 20
"""Elements worked on at a time, so that temporary arrays stay in the cache."""


def random_words(n: int, *key: int) -> Words:
    """uint64 [n], a function of the key alone (seed, stream, epoch, ...)."""
    words = np.random.PCG64(np.random.SeedSequence(key)).random_raw(n)
    return np.asarray(words, np.uint64)


def permutation(n: int, *key: int) -> Indices:
    """A random permutation of range(n), int32 or int64 [n], a function of the key alone.

    Uniform up to ties of the 64 - bit_length(n) random bits that it is sorted by.
    """
    words = word_chunks(*key)
    bits = np.uint64(n.bit_length())
    return sorted_indices(n, lambda at: words(len(at)) >> bits)


def word_chunks(*key: int) -> Callable[[int], Words]:
    """A function that returns the next so many words of `random_words`."""
    generator = np.random.PCG64(np.random.SeedSequence(key))
    return lambda count: np.asarray(generator.random_raw(count), np.uint64)


def sorted_indices(n: int, key: Callable[[NDArray[np.int64]], Words]) -> Indices:
    """range(n) sorted by a key, equal ones in ascending order; int32 or int64 [n].

    Args:
        n: at most 2^32.
        key: from consecutive indices int64 [m] to their keys, each below 2^(64 - bit_length(n));
            called with all indices in order, a chunk at a time.
    """
    bits = np.uint64(n.bit_length())
    words = np.empty(n, np.uint64)
    for chunk in chunks(n):
        at = np.arange(chunk.start, chunk.stop)
        words[chunk] = key(at) << bits | at.astype(np.uint64)
    words.sort()
    words &= (np.uint64(1) << bits) - np.uint64(1)
    return words.astype(indices_dtype(n))


def chunks(n: int, size: int = CHUNK) -> Iterator[slice]:
    """Consecutive slices of range(n)."""
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))


def indices_dtype(n: int) -> type[np.int32] | type[np.int64]:
    """The integer type that indices below n are kept in."""
    return np.int32 if n < 1 << 31 else np.int64
