"""`PackDataset` under torchdata's `StatefulDataLoader`, and states taken within a step.

A step of the plan has three packs here. A state says at which step to go on: one that is taken
between the packs of a step goes on at that step's begin, since what its earlier packs gave has
changed no weights yet.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lake import Lake
from loader import PackDataset, PackLoader, on_device
from loader.torch_face import Batch
from packing.plan import Plan
from tests.loader.scenes import digest

stateful = pytest.importorskip(
    "torchdata.stateful_dataloader", reason="needs torchdata: pip install 'headrace[dev]'"
)

# Torchdata calls it; torch deprecates it.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


@pytest.fixture(scope="module")
def expected(scene: Lake, plan: Plan) -> list[str]:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        return [digest(batch) for batch in loader]


def _data_loader(scene: Lake, plan: Plan, num_workers: int) -> Any:
    """As a user has it, made anew in each process."""
    options = {"multiprocessing_context": "forkserver"} if num_workers else {}
    return stateful.StatefulDataLoader(
        PackDataset(PackLoader(scene, plan, process="inline")),
        batch_size=None,
        num_workers=num_workers,
        **options,
    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_three_resumes_are_the_uninterrupted_run(
    scene: Lake, plan: Plan, expected: list[str], num_workers: int
) -> None:
    """The second of them from within a step."""
    state: dict[str, Any] | None = None
    runs: list[list[str]] = []
    for packs in (6, 5, 9, 1000):
        loader = _data_loader(scene, plan, num_workers)
        if state is not None:
            loader.load_state_dict(state)
        runs.append([])
        for batch in loader:
            runs[-1].append(digest(batch))
            if len(runs[-1]) == packs:
                state = loader.state_dict()
                break
        del loader
    # The run that was stopped two packs into a step kept the three of the step before.
    kept = [run[: len(run) // 3 * 3] for run in runs]
    assert [digest for run in kept for digest in run] == expected


def test_the_end_of_the_plan_stays_the_end(scene: Lake, plan: Plan) -> None:
    loader = _data_loader(scene, plan, 0)
    assert sum(1 for _ in loader) == plan.packs.num_rows
    resumed = _data_loader(scene, plan, 0)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == []


class Accumulation:
    """A trainer that adds up what its micro-batches say and updates its weights once per step."""

    def __init__(self) -> None:
        self.weights = ""
        self.pending: list[str] = []

    def take(self, batch: Batch, packs_per_step: int) -> bool:
        """Add a micro-batch; True where this has ended a step."""
        self.pending.append(digest(batch))
        if len(self.pending) < packs_per_step:
            return False
        self.weights += "".join(self.pending)
        self.pending = []
        return True


def _plain(loader: PackLoader) -> Iterator[Batch]:
    return iter(loader)


def _dataset(loader: PackLoader) -> Iterator[Batch]:
    return iter(PackDataset(loader))


def _device(loader: PackLoader) -> Iterator[Batch]:
    return on_device(loader, "cpu", ahead=2)


@pytest.mark.parametrize("face", [_plain, _dataset, _device])
@pytest.mark.parametrize("world_size", [1, 2])
def test_accumulation_survives_a_kill_anywhere(
    scene: Lake, plan: Plan, face: Any, world_size: int
) -> None:
    """Weights and position are saved together after each micro-batch; what is pending is lost."""
    uninterrupted = Accumulation()
    with PackLoader(scene, plan, 0, world_size, process="inline") as loader:
        for batch in loader:
            uninterrupted.take(batch, loader.packs_per_step)
    saved: tuple[str, dict[str, Any]] | None = None
    for killed_after in (1, 4, 5, 2, 1000):
        trainer = Accumulation()
        with PackLoader(scene, plan, 0, world_size, process="inline") as loader:
            if saved is not None:
                trainer.weights = saved[0]
                loader.load_state_dict(saved[1])
            for number, batch in enumerate(face(loader), start=1):
                trainer.take(batch, loader.packs_per_step)
                saved = trainer.weights, loader.state_dict()
                if number == killed_after:
                    break
    assert trainer.weights == uninterrupted.weights
    assert trainer.pending == []
