"""How runs in different number formats are compared."""

import pytest

from tools.bench.fp8_parity import gaps, quarters


def test_quarters_cover_every_step_once() -> None:
    assert quarters([1, 1, 2, 2, 3, 3, 4, 4]) == [1, 2, 3, 4]
    assert sum(quarters([float(n) for n in range(16)])) * 4 == sum(range(16))


def test_a_gap_is_of_runs_from_the_same_weights() -> None:
    exact = [[9.0, 9, 9, 1], [9.0, 9, 9, 2]]
    assert gaps(exact, exact) == [0, 0]
    assert gaps([[0.0, 0, 0, 1.1], [0.0, 0, 0, 1.8]], exact) == pytest.approx([0.1, -0.1])
    with pytest.raises(ValueError, match="longer"):
        gaps(exact[:1], exact)
