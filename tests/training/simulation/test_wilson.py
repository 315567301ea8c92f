import math

import pytest

from training.simulation.errors import SimulationError
from training.simulation.wilson import wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998, table I, method 3 (score), the four cases of the paper.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # Mirror images: the interval of failures is that of successes turned round.
        (20, 20, 0.8389, 1.0000),
        (28, 29, 0.8282, 0.9939),
    ],
)
def test_published_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_bounds_solve_the_score_equation() -> None:
    # At a bound p the observed share lies exactly z standard errors (taken at p) away.
    z = 2.5758293035489004  # of 99 %
    for bound in wilson_interval(7, 40, confidence=0.99):
        error = math.sqrt(bound * (1 - bound) / 40)
        assert abs(7 / 40 - bound) / error == pytest.approx(z, rel=1e-9)


@pytest.mark.parametrize("trials", [1, 5, 1000])
def test_ends_are_exact_and_have_width(trials: int) -> None:
    low, high = wilson_interval(0, trials)
    assert low == 0.0
    assert 0.0 < high < 1.0
    assert wilson_interval(trials, trials) == pytest.approx((1 - high, 1.0), abs=1e-12)
    assert wilson_interval(trials, trials)[1] == 1.0


@pytest.mark.parametrize(
    ("successes", "trials", "confidence"),
    [(0, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0), (1, 5, 0.0)],
)
def test_impossible_counts_are_refused(successes: int, trials: int, confidence: float) -> None:
    with pytest.raises(SimulationError, match="no interval"):
        wilson_interval(successes, trials, confidence=confidence)
