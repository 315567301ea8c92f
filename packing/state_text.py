"""A state written as text: numbers of bins, each a few tokens, as pi0.5 reads its state.

A state is normalised by its 1 % and 99 % quantiles to [-1, 1], which is cut into 256 equal bins:
`PaligemmaTokenizer.tokenize` in openpi's `src/openpi/models/tokenizer.py`, after `Normalize` with
`use_quantiles` in `src/openpi/transforms.py`. What lies below the first bin is written as -1, what
lies above the last one as 255, as there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError

BINS: Final = 256
LOWEST_BIN: Final = -1
NUMBERS: Final = tuple(str(number) for number in range(LOWEST_BIN, BINS))
"""Every text of one element."""

# Multiples of 1/128: exact in float32.
_EDGES: Final = (np.arange(BINS, dtype=np.float32) - BINS // 2) / np.float32(BINS // 2)
_TINY: Final = np.float32(1e-6)


def state_bins(
    state: NDArray[np.float32], q01: NDArray[np.float32], q99: NDArray[np.float32]
) -> NDArray[np.int16]:
    """Bins of states, int16 [n, D] in -1..255, from float32 [n, D] or what broadcasts to it.

    Single float32 operations, each rounded as IEEE 754 says, and comparisons with exact edges: the
    same bins on every machine.

    Raises:
        PackingError: a state is not finite, or the quantiles are further apart than float32 tells.
    """
    if not np.isfinite(state).all():
        raise PackingError(
            "a state that is written as text is not finite; select other episodes, or feed the"
            " state as a token"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # far outside is outside
        scaled = (state - q01) / (q99 - q01 + _TINY) * np.float32(2) - np.float32(1)
    if np.isnan(scaled).any():
        raise PackingError(
            "the 1 % and 99 % quantiles of a state that is written as text are further apart than"
            " float32 can tell; feed the state as a token, or leave that feature out"
        )
    bins: NDArray[np.int64] = np.searchsorted(_EDGES, scaled, side="right") - 1
    return bins.astype(np.int16)


@dataclass(frozen=True)
class StateText:
    """Token ids of every number, once for the first element of a state and once for the others.

    The two differ by the space between numbers, whichever way a tokenizer splits it.

    Attributes:
        first: ids of the numbers -1, 0, ..., 255 as the first element.
        further: ids of the same numbers, and of the space before them, as any other element.
    """

    first: tuple[tuple[int, ...], ...]
    further: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.first) != len(NUMBERS) or len(self.further) != len(NUMBERS):
            raise PackingError(
                f"a state's text has {len(self.first)} and {len(self.further)} numbers, expected"
                f" {len(NUMBERS)} of each"
            )

    def ids(self, bins: Sequence[int]) -> Iterator[int]:
        """Ids of one state, from the bins of its elements."""
        for number, chosen in enumerate(bins):
            table = self.further if number else self.first
            yield from table[chosen - LOWEST_BIN]

    def max_tokens(self, size: int) -> int:
        """Most tokens that a state of `size` elements can take."""
        if not size:
            return 0
        return int(self._first.max()) + (size - 1) * int(self._further.max())

    def expected_unused(self, size: int) -> float:
        """Estimate of how many of `max_tokens` a state leaves, all bins being equally likely."""
        if not size:
            return 0.0
        inside = slice(-LOWEST_BIN, None)
        mean = self._first[inside].mean() + (size - 1) * self._further[inside].mean()
        return self.max_tokens(size) - float(mean)

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        return np.array([len(ids) for ids in self.first])

    @cached_property
    def _further(self) -> NDArray[np.int64]:
        return np.array([len(ids) for ids in self.further])

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON."""
        return cls(
            *(tuple(tuple(ids) for ids in raw[name]) for name in ("first", "further")),
        )
