"""Steps, slots and positions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.cursor import Cursor
from loader.errors import LoaderError, LoaderStateError


def _cursor(rank: int = 0, world_size: int = 1, *, steps: int = 5, slots: int = 4) -> Cursor:
    return Cursor(
        plan_hash="abc", num_steps=steps, slots_per_step=slots, rank=rank, world_size=world_size
    )


@given(steps=st.integers(0, 6), slots=st.integers(1, 9), data=st.data())
def test_ranks_share_every_slot_once_and_stay_in_step(
    steps: int, slots: int, data: st.DataObject
) -> None:
    world_size = data.draw(st.integers(1, slots))
    seen: list[tuple[int, int]] = []
    for rank in range(world_size):
        cursor = _cursor(rank, world_size, steps=steps, slots=slots)
        places = [cursor.place(p) for block in cursor.blocks(0, 3) for p in block]
        assert [p.position for p in places] == list(range(steps * cursor.packs_per_step))
        assert [p.step for p in places if p.last_of_step] == list(range(steps))
        seen += [(p.step, p.slot) for p in places if p.slot < slots]
    assert sorted(seen) == [(step, slot) for step in range(steps) for slot in range(slots)]


@given(first=st.integers(0, 7), workers=st.integers(1, 4), packs=st.integers(1, 5))
def test_workers_share_the_blocks_in_turn(first: int, workers: int, packs: int) -> None:
    cursor = _cursor(1, 3, steps=7, slots=5)
    whole = list(cursor.blocks(first, packs))
    shares = [
        list(cursor.blocks(first, packs, worker=worker, num_workers=workers))
        for worker in range(workers)
    ]
    assert [shares[n % workers][n // workers] for n in range(len(whole))] == whole
    assert sum(map(len, shares)) == len(whole)


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 1), (1, 1), (4, 4)])
def test_a_rank_outside_the_world_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(LoaderError, match=f"rank {rank} of world size {world_size}"):
        _cursor(rank, world_size)


def test_more_ranks_than_slots_are_refused_with_advice() -> None:
    with pytest.raises(LoaderError, match="slots_per_step >= 5"):
        _cursor(0, 5)


def test_a_state_goes_round() -> None:
    cursor = _cursor()
    assert cursor.state(3) == {"plan_hash": "abc", "next_step": 3, "layout_version": 1}
    assert cursor.next_step(cursor.state(3)) == 3
    assert _cursor(1, 2).next_step(cursor.state(5)) == 5
    assert type(cursor.next_step({**cursor.state(3), "next_step": np.int64(3)})) is int


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plan_hash": "other"}, "of plan other, but this loader streams plan abc"),
        ({"layout_version": 2}, "layout 2"),
        ({"next_step": 6}, "step 6 of 5"),
        ({"next_step": -1}, "step -1 of 5"),
        ({"next_step": "3"}, "step '3' of 5"),
        ({"workers": 1}, "not a loader state"),
    ],
)
def test_a_foreign_state_is_refused(change: dict[str, object], message: str) -> None:
    cursor = _cursor()
    with pytest.raises(LoaderStateError, match=message):
        cursor.next_step({**cursor.state(3), **change})
