"""Fixtures of the catalog's tests."""

from collections.abc import Callable

import pytest

from lake import Episode, Lake
from tests.catalog.views import write


@pytest.fixture
def small_lake(lake: Lake, make_episode: Callable[..., Episode]) -> Lake:
    """Six episodes of 5 to 10 steps, of two cameras where the number is even, in two commits."""
    episodes = [
        make_episode(n, steps=5 + n, camera_names=() if n % 2 else ("top", "wrist"))
        for n in range(6)
    ]
    write(lake, episodes[:4])
    write(lake, episodes[4:])
    return lake
