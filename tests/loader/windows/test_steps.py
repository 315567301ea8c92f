"""Deltas in seconds are whole steps of the grid, or refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader import LoaderError
from loader.windows.steps import Deltas, whole_steps

RATES = st.sampled_from([1.0, 3.0, 10.0, 15.0, 29.97, 30000 / 1001, 30.0, 50 / 3, 60.0, 1000.0])


@given(fps=RATES, steps=st.lists(st.integers(-100_000, 100_000), min_size=1, max_size=50))
def test_what_people_write_for_whole_steps_is_taken(fps: float, steps: list[int]) -> None:
    for written in ([k / fps for k in steps], [k * (1 / fps) for k in steps]):
        assert whole_steps("action", written, fps).tolist() == steps
    summed = np.cumsum(np.full(40, 1 / fps)).tolist()
    assert whole_steps("action", summed, fps).tolist() == list(range(1, 41))


@given(fps=RATES, step=st.integers(-1000, 1000), off=st.floats(0.001, 0.999))
def test_between_two_steps_is_refused(fps: float, step: int, off: float) -> None:
    with pytest.raises(LoaderError, match=r"observation.state.*not a whole number; the nearest"):
        whole_steps("observation.state", [(step + off) / fps], fps)


def test_the_message_says_what_would_be_right() -> None:
    with pytest.raises(LoaderError) as refused:
        whole_steps("observation.images.top", [0.0, -0.033], 30.0)
    text = str(refused.value)
    assert "observation.images.top: -0.033 s is -0.99 steps at 30 steps/s" in text
    assert "the nearest is -1 steps = -0.03333333333333333 s" in text
    # Rounded to milliseconds, a rate of thirds is no whole number either.
    with pytest.raises(LoaderError, match="nearest is 1 steps"):
        whole_steps("action", [1 / 29.97], 30000 / 1001)


@pytest.mark.parametrize("delta", [float("nan"), float("inf"), -float("inf")])
def test_no_number_is_no_delta(delta: float) -> None:
    with pytest.raises(LoaderError, match="not a time"):
        whole_steps("action", [delta], 30.0)


def test_a_key_has_one_kind_of_deltas() -> None:
    with pytest.raises(LoaderError, match="action: give delta_timestamps"):
        Deltas({"action": [0.0]}, {"action": [0]})
    with pytest.raises(LoaderError, match="empty list"):
        Deltas(None, {"action": []})
    with pytest.raises(LoaderError, match="not all whole"):
        Deltas(None, {"action": [0.5]})  # type: ignore[list-item]


def test_steps_are_taken_at_any_rate_and_seconds_need_one() -> None:
    deltas = Deltas({"state": [-0.1, 0.0]}, {"action": [0, 1, 2]})
    keys = ["state", "action", "reward"]
    assert {k: v.tolist() for k, v in deltas.at(10.0, keys, "x").items()} == {
        "state": [-1, 0],
        "action": [0, 1, 2],
    }
    assert deltas.at(20.0, keys, "x")["state"].tolist() == [-2, 0]
    with pytest.raises(LoaderError, match=r"episode e.*no nominal rate.*use delta_steps"):
        deltas.at(None, keys, "episode e")
    assert deltas.at(None, ["action"], "episode e")["action"].tolist() == [0, 1, 2]
    with pytest.raises(LoaderError, match=r"episode e: delta_timestamps of state: -0.1 s"):
        deltas.at(15.0, keys, "episode e")
