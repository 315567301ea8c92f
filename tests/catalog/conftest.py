"""Fixtures of the catalog's tests."""

import pytest

from lake import Lake, create_lake
from tests.catalog.views import write
from tests.episodes import make_episode


@pytest.fixture
def small_lake(lake: Lake) -> Lake:
    """Six episodes of 5 to 10 steps, of two cameras where the number is even, in two commits."""
    return _fill(lake)


@pytest.fixture(scope="session")
def still_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same, made once; nobody may change it."""
    return _fill(create_lake(tmp_path_factory.mktemp("still") / "robots.lake"))


def _fill(lake: Lake) -> Lake:
    episodes = [
        make_episode(n, steps=5 + n, camera_names=() if n % 2 else ("top", "wrist"))
        for n in range(6)
    ]
    write(lake, episodes[:4])
    write(lake, episodes[4:])
    return lake
