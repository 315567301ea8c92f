"""What an alignment policy may say."""

from typing import Any

import pytest

from ingest.alignment.policy import AlignmentPolicy, StreamPolicy
from ingest.errors import IngestError


@pytest.mark.parametrize(
    "wrong",
    [
        {"grid": "a", "grid_fps": 10.0},
        {"grid_fps": 0.0},
        {"action_lag_steps": -1},
        {"action_lag_steps": 1.5},
        {"clock": "wall"},
        {"span": "some"},
    ],
)
def test_policies_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(IngestError):
        AlignmentPolicy(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "guess"},
        {"clock": "wall"},
        {"max_age_ns": -1},
        {"max_age_ns": 0.5},
        {"max_age_ns": 1 << 63},
    ],
)
def test_stream_policies_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(IngestError):
        StreamPolicy(**wrong)


def test_a_policy_is_read_back_as_it_was_written() -> None:
    policy = AlignmentPolicy(
        grid="top", streams={"imu": StreamPolicy(method="linear", clock="header", max_age_ns=5)}
    )
    assert AlignmentPolicy.from_json(policy.to_json()) == policy
    assert policy.of("imu").method == "linear"
    assert (policy.clock_of("imu"), policy.clock_of("other")) == ("header", "log")


def test_a_policy_may_say_little_and_nothing_unknown() -> None:
    assert AlignmentPolicy.from_json('{"grid_fps": 20}') == AlignmentPolicy(grid_fps=20)
    for wrong in (
        "[]",
        "{",
        '{"fps": 20}',
        '{"default": {"method": "guess"}}',
        '{"streams": 3}',
        '{"span": "some"}',
        '{"grid_fps": "20"}',
        '{"clock": 3}',
    ):
        with pytest.raises(IngestError):
            AlignmentPolicy.from_json(wrong)
