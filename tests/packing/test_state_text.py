"""States as numbers of bins."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from packing.errors import PackingError
from packing.state_text import NUMBERS, StateText, state_bins

FINITE = st.floats(-1e6, 1e6, width=32)


def one(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def table(lengths: int = 1) -> StateText:
    """Number n is n + 10 as the first element, n + 1000 as another, -1 with `lengths` tokens."""
    return StateText(
        first=tuple((number + 9,) for number in range(len(NUMBERS))),
        further=tuple(
            (number + 999,) * (lengths if number == 0 else 1) for number in range(len(NUMBERS))
        ),
    )


@given(hnp.arrays(np.float32, (5, 3), elements=FINITE))
def test_bins_are_those_of_openpi(state: np.ndarray) -> None:
    q01, q99 = one(-2.0, 0.0, -1e3), one(3.0, 1.0, 1e4)
    # `Normalize._normalize_quantile`, then `PaligemmaTokenizer.tokenize`, in float32.
    scaled = (state - q01) / (q99 - q01 + one(1e-6)) * one(2.0) - one(1.0)
    want = np.digitize(scaled, bins=np.linspace(-1, 1, 256 + 1)[:-1]) - 1
    bins = state_bins(state, q01, q99)
    assert bins.dtype == np.int16
    assert bins.tolist() == want.tolist()


def test_bins_are_the_same_on_every_machine() -> None:
    # From integers alone: the digest was taken once and holds everywhere.
    numbers = (np.arange(300_000, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(1 << 24)
    state = (numbers.astype(np.float32) / np.float32(1 << 23) - np.float32(1)).reshape(-1, 3)
    bins = state_bins(state, one(-0.7, -0.3, 0.1), one(0.9, 0.31, 0.100001))
    digest = hashlib.sha256(bins.astype("<i2").tobytes()).hexdigest()
    assert digest[:16] == "9bb2019cc372fcf0"


def test_edges_by_hand() -> None:
    # The range is widened by 1e-6, as there: 129/128 - 1 as a float32 quotient.
    edges = one(-10.0, -1.0001, -1.0, -0.9999, 0.001, 0.9999, 1.1, 10.0)
    bins = state_bins(edges[:, None], one(-1.0), one(1.0))
    assert bins[:, 0].tolist() == [-1, -1, 0, 0, 128, 255, 255, 255]


def test_an_element_that_never_changes_is_in_the_first_bin() -> None:
    assert state_bins(one(5.0, 0.0), one(5.0, 0.0), one(5.0, 0.0)).tolist() == [0, 0]
    far = state_bins(one(3e38, -3e38), one(0.0, 0.0), one(0.0, 0.0))
    assert far.tolist() == [255, -1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_bin(value: float) -> None:
    with pytest.raises(PackingError, match="not finite"):
        state_bins(one(0.0, value), one(0.0, 0.0), one(1.0, 1.0))


def test_a_range_beyond_float32_has_no_bins() -> None:
    assert state_bins(one(1e38), one(-1e38), one(1e38)).tolist() == [255]
    with pytest.raises(PackingError, match="further apart than float32"):
        state_bins(one(3e38), one(-3e38), one(3e38))


def test_ids_and_lengths() -> None:
    text = table(lengths=3)
    assert list(text.ids([0, 255, -1])) == [10, 1255, 999, 999, 999]
    assert list(text.ids([])) == []
    assert [text.max_tokens(size) for size in (0, 1, 4)] == [0, 1, 1 + 3 * 3]
    # Bins inside the range have one token: that of -1 is not expected.
    assert [text.expected_unused(size) for size in (0, 1, 4)] == [0.0, 0.0, 6.0]


def test_a_table_has_every_number() -> None:
    assert NUMBERS[:3] + NUMBERS[-1:] == ("-1", "0", "1", "255")
    with pytest.raises(PackingError, match="has 1 and 257 numbers"):
        StateText(first=((1,),), further=table().further)
