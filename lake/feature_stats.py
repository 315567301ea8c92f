"""Statistics of a feature that merge: over episodes, datasets, selections.

Count, min, max, mean and m2 (sum of squared deviations) are exact and merge by the pairwise rule of
Chan, Golub and LeVeque (1979). Quantiles are a sketch: the values at the fixed probabilities
`QUANTILES`, exact for one episode; merging takes each part's distribution to be linear between
them and reads the quantiles of the weighted mixture, so they are close, not exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lake.errors import SpecError

QUANTILES: Final = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

MAX_ELEMENTS: Final = 1024
"""Features with more elements per step (depth maps, point clouds) get counts only."""

_NARROWEST: Final = 1e-300


@dataclass(frozen=True, kw_only=True)
class FeatureStats:
    """Statistics per element of a feature, D elements flattened.

    A step counts when it is valid and all of its elements are finite. All in float64: integers
    beyond 2^53 are rounded.

    Attributes:
        count: steps that count.
        invalid: steps that do not.
        min, max, mean, m2: float64 [D]; D = 0 for text and very large features, and all values
            are NaN where count is 0.
        quantiles: float64 [len(QUANTILES), D].
    """

    count: int
    invalid: int
    min: NDArray[np.float64]
    max: NDArray[np.float64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    quantiles: NDArray[np.float64]

    def __post_init__(self) -> None:
        size = self.min.shape
        for name in ("max", "mean", "m2"):
            if getattr(self, name).shape != size:
                raise SpecError(f"feature stats: {name} is {getattr(self, name).shape}, not {size}")
        if self.quantiles.shape != (len(QUANTILES), *size):
            raise SpecError(f"feature stats: quantiles are {self.quantiles.shape}")

    @property
    def std(self) -> NDArray[np.float64]:
        """Population standard deviation, float64 [D]; NaN where nothing was counted."""
        if not self.count:
            return np.full_like(self.m2, np.nan)
        std: NDArray[np.float64] = np.sqrt(self.m2 / self.count)
        return std

    def quantile(self, probability: float) -> NDArray[np.float64]:
        """float64 [D] at a probability in [0, 1]; linear between those of `QUANTILES`."""
        result = [np.interp(probability, QUANTILES, column) for column in self.quantiles.T]
        return np.array(result, np.float64)

    @property
    def q01(self) -> NDArray[np.float64]:
        """1st percentile, float64 [D]."""
        return self.quantile(0.01)

    @property
    def q99(self) -> NDArray[np.float64]:
        """99th percentile, float64 [D]."""
        return self.quantile(0.99)

    @classmethod
    def of(cls, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Self:
        """Statistics of `values` [T, *shape] over the steps where `valid` [T] (default: all)."""
        steps = len(values)
        countable = np.ones(steps, np.bool_) if valid is None else valid
        flat = values.reshape(steps, -1)
        if values.dtype.kind in "OU" or flat.shape[1] > MAX_ELEMENTS:
            count = int(countable.sum())
            return cls._empty(count, steps - count, 0)
        numbers = flat.astype(np.float64)
        countable = countable & np.isfinite(numbers).all(axis=1)
        numbers = numbers[countable]
        count = len(numbers)
        if not count:
            return cls._empty(0, steps, flat.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            mean = numbers.mean(axis=0)
            m2 = ((numbers - mean) ** 2).sum(axis=0)
            ascending = np.sort(numbers, axis=0)
            quantiles = _quantiles(ascending)
        return cls(
            count=count,
            invalid=steps - count,
            min=ascending[0],
            max=ascending[-1],
            mean=mean,
            m2=m2,
            quantiles=quantiles,
        )

    @classmethod
    def _empty(cls, count: int, invalid: int, size: int) -> Self:
        nothing = np.full(size, np.nan)
        return cls(
            count=count,
            invalid=invalid,
            min=nothing,
            max=nothing,
            mean=nothing,
            m2=nothing,
            quantiles=np.full((len(QUANTILES), size), np.nan),
        )


def combine(parts: Sequence[FeatureStats]) -> FeatureStats:
    """Statistics of all parts together, in any grouping the same but for rounding.

    Raises:
        SpecError: no part, or parts with different numbers of elements.
    """
    sizes = {len(part.min) for part in parts}
    if len(sizes) != 1:
        raise SpecError(f"cannot combine statistics of {len(parts)} parts with {sizes} elements")
    filled = [part for part in parts if part.count and len(part.min)]
    count = sum(part.count for part in parts)
    invalid = sum(part.invalid for part in parts)
    if not filled:
        first = parts[0]
        return FeatureStats(
            count=count,
            invalid=invalid,
            min=first.min,
            max=first.max,
            mean=first.mean,
            m2=first.m2,
            quantiles=first.quantiles,
        )
    weight = np.array([part.count for part in filled], np.float64)[:, None]
    means = np.stack([part.mean for part in filled])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (weight * means).sum(axis=0) / weight.sum()
        m2 = np.stack([part.m2 for part in filled]).sum(axis=0)
        m2 += (weight * (means - mean) ** 2).sum(axis=0)
    sketches = np.stack([part.quantiles for part in filled])
    return FeatureStats(
        count=count,
        invalid=invalid,
        min=np.min([part.min for part in filled], axis=0),
        max=np.max([part.max for part in filled], axis=0),
        mean=mean,
        m2=m2,
        quantiles=_mixture_quantiles(sketches, weight[:, 0]),
    )


def _quantiles(ascending: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values [Q, D] at `QUANTILES` of columns [T, D] in ascending order, linear between steps.

    The same as `np.quantile`, which takes several times as long for the few hundred steps of an
    episode.
    """
    at = np.array(QUANTILES) * (len(ascending) - 1)
    step = at.astype(np.intp)
    low, high = ascending[step], ascending[np.minimum(step + 1, len(ascending) - 1)]
    between: NDArray[np.float64] = low + (high - low) * (at - step)[:, None]
    return np.minimum(between, high)  # rounding must not lead past the next step


def _mixture_quantiles(
    sketches: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles [Q, D] of the mixture of N piecewise linear distributions [N, Q, D]."""
    if len(sketches) == 1:
        only: NDArray[np.float64] = sketches[0]
        return only
    mass = (np.diff(QUANTILES)[None, :] * (weight / weight.sum())[:, None]).ravel()
    result = np.empty(sketches.shape[1:])
    for element in range(sketches.shape[2]):
        low = sketches[:, :-1, element].ravel()
        high = sketches[:, 1:, element].ravel()
        # Narrower than this a segment is a step: its slope would be beyond float64.
        wide = high - low > _NARROWEST
        # The cumulative distribution: its slope rises at each segment's start and falls at its
        # end; a segment without width is a step.
        slope = mass[wide] / (high[wide] - low[wide])
        at = np.concatenate([low[wide], high[wide], low[~wide]])
        turn = np.concatenate([slope, -slope, np.zeros((~wide).sum())])
        step = np.concatenate([np.zeros(2 * len(slope)), mass[~wide]])
        order = np.argsort(at, kind="stable")
        at = at[order]
        climbed = np.cumsum(turn[order])[:-1] * np.diff(at)
        below = np.concatenate([[0.0], np.cumsum(climbed)]) + np.cumsum(step[order])
        below = np.maximum.accumulate(below)
        result[:, element] = np.interp(QUANTILES, below, at)
        result[0, element], result[-1, element] = low.min(), high.max()
    return result
