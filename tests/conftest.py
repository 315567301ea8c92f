"""Fixtures shared by all tests."""

import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from lake import Episode, Lake, create_lake
from tests import episodes
from tests.s3_server import s3_server

__all__ = ["s3_server"]  # a fixture is shared by being named here

# Before anything imports torch: two of its threads that contend are far slower than one. Processes
# that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# In CI every run tries the same examples, so that a red run says something of its change; on a
# developer's machine each run tries others. On a busy machine an example may take any time.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("developer", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "developer")

_REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of real recordings, from `HEADRACE_RECORDINGS` or beside the repository."""
    default = _REPOSITORY.parent / "shared" / "recordings"
    folder = Path(os.environ.get("HEADRACE_RECORDINGS", default))
    if not folder.is_dir():
        pytest.skip(f"no recordings at {folder}; set HEADRACE_RECORDINGS to a folder of them")
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake on local disk."""
    return create_lake(tmp_path / "robots.lake")


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    """The factory of synthetic episodes, see `tests.episodes`."""
    return episodes.make_episode


@pytest.fixture
def make_filmed_episode() -> Callable[..., Episode]:
    """The factory of episodes with real video, see `tests.episodes`."""
    return episodes.make_filmed_episode
