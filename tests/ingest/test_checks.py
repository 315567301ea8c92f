from dataclasses import replace

import numpy as np
import pytest

from ingest.checks import check_episode
from lake.episode import Episode
from tests.episodes import make_episode
from tests.ingest.lerobot_data import reasons


def timed(times: list[int]) -> Episode:
    episode = make_episode(steps=len(times))
    return replace(episode, fps=10.0, timestamps_ns=np.array(times, np.int64))


TENTH = 100_000_000


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0, 1, 2, 3], set()),
        ([5, 6, 7, 8], set()),
        ([0, 2, 4, 6], {"rate-differs"}),
        ([0, 1, 1, 3], {"repeated-timestamps"}),
        ([0, 2, 1, 3], {"backward-timestamps"}),
        ([4, 4, 4, 4], {"constant-timestamps"}),
        ([9], set()),
    ],
)
def test_step_grid(times: list[int], expected: set[str]) -> None:
    episode = timed([t * TENTH for t in times])
    findings = check_episode(episode)
    assert reasons(findings) == expected
    assert all(f.severity == "warning" and f.stream == "timestamps" for f in findings)


def test_numbers_that_are_none() -> None:
    episode = make_episode(steps=4)
    state = episode.features["state"].copy()
    state[1, 0], state[3, 2] = np.nan, np.inf
    bad = replace(episode, features={**episode.features, "state": state})
    (finding,) = [f for f in check_episode(bad) if f.reason == "not-finite"]
    assert finding.stream == "state"
    assert finding.detail.startswith("2 steps")
    masked = replace(bad, valid={"state": np.array([True, False, True, False])})
    assert "not-finite" not in reasons(check_episode(masked))
