"""Guarantee 2: world size, process mode, worker count and byte bound do not change the sequence.

Each row of the plan must come out as the same bytes, whoever streams it.
"""

from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from loader import PackLoader
from packing.plan import Plan
from tests.loader import scenes

_SLOTS = 4


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("elastic")))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    return scenes.scene_plan(lake, slots_per_step=_SLOTS)


def _global_sequence(
    lake: Lake, plan: Plan, world_size: int, **options: Any
) -> dict[tuple[int, int], str]:
    """(step, slot) -> digest over all ranks; checks what ranks promise each other."""
    found: dict[tuple[int, int], str] = {}
    states = []
    for rank in range(world_size):
        with PackLoader(lake, plan, rank, world_size, framework="numpy", **options) as loader:
            packs = 0
            for batch in loader:
                packs += 1
                key = (batch.step, batch.slot)
                if batch.slot >= _SLOTS:  # a rank without a slot: nothing to learn from
                    assert batch.num_spans == batch.num_action_items == 0
                    assert batch.pack == -1
                    continue
                assert key not in found
                found[key] = scenes.digest(batch)
            assert packs == plan.num_steps * -(-_SLOTS // world_size)
            states.append(loader.state_dict())
    assert states.count(states[0]) == world_size
    return found


@pytest.fixture(scope="module")
def reference(lake: Lake, plan: Plan) -> dict[tuple[int, int], str]:
    sequence = _global_sequence(lake, plan, 1, process="inline")
    assert list(sequence) == [(s, slot) for s in range(plan.num_steps) for slot in range(_SLOTS)]
    return sequence


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_every_world_size(
    lake: Lake, plan: Plan, reference: dict[tuple[int, int], str], world_size: int
) -> None:
    assert _global_sequence(lake, plan, world_size, process="inline") == reference


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 1 << 22])
def test_every_byte_bound(
    lake: Lake, plan: Plan, reference: dict[tuple[int, int], str], buffer_bytes: int
) -> None:
    found = _global_sequence(lake, plan, 2, process="inline", buffer_bytes=buffer_bytes)
    assert found == reference


@pytest.mark.parametrize(("world_size", "num_workers"), [(1, 1), (1, 3), (3, 2)])
def test_every_worker_count(
    lake: Lake,
    plan: Plan,
    reference: dict[tuple[int, int], str],
    world_size: int,
    num_workers: int,
) -> None:
    found = _global_sequence(
        lake, plan, world_size, process="child", num_workers=num_workers, buffer_bytes=1 << 21
    )
    assert found == reference


def test_a_change_of_world_size_in_the_middle(
    lake: Lake, plan: Plan, reference: dict[tuple[int, int], str]
) -> None:
    found: dict[tuple[int, int], str] = {}
    state: dict[str, Any] | None = None
    thirds = [plan.num_steps // 3, 2 * plan.num_steps // 3, plan.num_steps]
    for world_size, stop in zip((3, 1, 4), thirds, strict=True):
        states = []
        for rank in range(world_size):
            loader = PackLoader(lake, plan, rank, world_size, process="inline", framework="numpy")
            if state is not None:
                loader.load_state_dict(state)
            for batch in loader:
                if batch.slot < _SLOTS:
                    found[batch.step, batch.slot] = scenes.digest(batch)
                if loader.next_step == stop:
                    break
            states.append(loader.state_dict())
            loader.close()
        state = states[0]
        assert all(each == state for each in states)
    assert found == reference
