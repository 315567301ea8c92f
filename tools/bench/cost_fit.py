"""The cost of packs from timings: a least-squares fit of weights that cannot be negative."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class CostSample:
    """One pack and how long it took.

    Attributes:
        tokens, sum_sq, images, spans: of the pack (see `packing.cost.CostModel.units`).
        seconds: of forward and backward.
    """

    tokens: int
    sum_sq: int
    images: int
    spans: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CostFit:
    """Weights in seconds.

    Attributes:
        per_token, per_square, per_image, per_span, per_pack: at least 0.
    """

    per_token: float
    per_square: float
    per_image: float
    per_span: float
    per_pack: float

    def seconds(self, sample: CostSample) -> float:
        """What the fit says that a pack takes."""
        return (
            self.per_pack
            + self.per_token * sample.tokens
            + self.per_square * sample.sum_sq
            + self.per_image * sample.images
            + self.per_span * sample.spans
        )

    def error(self, sample: CostSample) -> float:
        """(Fit - measured) / measured."""
        return self.seconds(sample) / sample.seconds - 1.0

    def root_mean_square_error(self, samples: Sequence[CostSample]) -> float:
        """Of the relative errors."""
        return float(np.sqrt(np.mean([self.error(sample) ** 2 for sample in samples])))


def fit_cost(samples: Sequence[CostSample]) -> CostFit:
    """Weights that minimise the sum of squared relative errors, none of them negative.

    With so few weights the non-negative optimum is found among the plain least-squares fits of all
    their subsets: it is the best of those that are nowhere negative.

    Args:
        samples: of at least two token counts and several span lengths, or weights are left open.
    """
    seconds = np.array([sample.seconds for sample in samples])
    table = np.array([[s.tokens, s.sum_sq, s.images, s.spans, 1] for s in samples], np.float64)
    # Relative errors are wanted; and columns of like size, for they differ by 1e9.
    scale = np.maximum(table.max(axis=0), 1.0)
    scaled = table / scale / seconds[:, None]
    used = [column for column in range(table.shape[1]) if table[:, column].any()]
    best, least = np.zeros(table.shape[1]), np.inf
    for count in range(1, len(used) + 1):
        for columns in combinations(used, count):
            weights, squares = _least_squares(scaled, list(columns))
            if (weights >= 0).all() and squares < least:
                best, least = weights, squares
    return CostFit(**dict(zip(CostFit.__dataclass_fields__, (best / scale).tolist(), strict=True)))


def _least_squares(
    table: NDArray[np.float64], columns: list[int]
) -> tuple[NDArray[np.float64], float]:
    """Weights, 0 off `columns`, that bring the rows nearest to 1; and the squares that are left."""
    weights = np.zeros(table.shape[1])
    weights[columns] = np.linalg.lstsq(table[:, columns], np.ones(len(table)), rcond=None)[0]
    return weights, float(((table @ weights - 1.0) ** 2).sum())
