"""Fixtures of the lake's tests."""

import pytest

from lake import Episode, EpisodeWriter, Lake
from tests.episodes import make_episode


@pytest.fixture
def episodes(lake: Lake) -> list[Episode]:
    """Five episodes of two specs and several lengths, in two commits."""
    made = [
        make_episode(
            number,
            steps=5 + number,
            dtype="float64" if number % 2 else "float32",
            camera_names=("top", "wrist") if number != 3 else (),
        )
        for number in range(5)
    ]
    with EpisodeWriter(lake, batch_episodes=3) as writer:
        for episode in made:
            writer.add(episode)
    return made
