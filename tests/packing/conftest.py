"""Fixtures of the packing tests."""

from collections.abc import Callable, Sequence

import pytest

from lake import Episode, EpisodeWriter, Lake

LENGTHS = (5, 9, 14, 7, 30, 12, 21, 8, 11, 17)


@pytest.fixture
def write(lake: Lake) -> Callable[[Sequence[Episode]], Lake]:
    """Write episodes into the lake and return it, seeing them."""

    def run(episodes: Sequence[Episode]) -> Lake:
        with EpisodeWriter(lake) as writer:
            for episode in episodes:
                writer.add(episode)
        lake.refresh()
        return lake

    return run


@pytest.fixture
def ten(write: Callable[[Sequence[Episode]], Lake], make_episode: Callable[..., Episode]) -> Lake:
    """A lake of ten episodes of several lengths, with two cameras, one camera or none."""
    cameras = (("top", "wrist"), ("top",), ())
    return write(
        [
            make_episode(
                number,
                steps=steps,
                camera_names=cameras[number % 3],
                dataset="even" if number % 2 == 0 else "odd",
                instruction=None if number == 4 else f"task {number % 3}",
                task=None if number == 4 else "lift",
            )
            for number, steps in enumerate(LENGTHS)
        ]
    )
