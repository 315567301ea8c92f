"""Fixtures of the loader's tests."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from lake import Lake
from packing.plan import Plan
from tests.loader import scenes


@pytest.fixture(scope="session", autouse=True)
def _ready_workers() -> None:
    """Workers of a fork server have torch and the loader from the start: seconds less for each."""
    multiprocessing.set_forkserver_preload(["torch.utils.data", "loader.windows.window"])


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A small lake with real video; never written to."""
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("scene")))


@pytest.fixture(scope="session")
def plan(scene: Lake) -> Plan:
    """Window spans of every episode, two epochs, three slots."""
    return scenes.scene_plan(scene)


@pytest.fixture
def open_fds() -> Callable[[], int]:
    """Counts the file descriptors of this process; some of earlier tests may close meanwhile."""
    return lambda: len(list(Path("/proc/self/fd").iterdir()))
