"""Fixtures of the training tests."""

import pytest

from lake import Lake
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.training.plans import make_lake, plan_windows

Planned = tuple[Lake, Plan]


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """A lake of signals with a plan called `windows`; tests only add rows to its `runs`."""
    lake = make_lake(tmp_path_factory.mktemp("training") / "robots.lake")
    plan = plan_windows(lake)
    save_plan(lake, plan, "windows")
    return lake, plan


@pytest.fixture(scope="session")
def planned_cameras(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """The same with two cameras."""
    lake = make_lake(tmp_path_factory.mktemp("cameras") / "robots.lake", episodes=3, cameras=True)
    plan = plan_windows(lake, epochs=2)
    save_plan(lake, plan, "windows")
    return lake, plan
