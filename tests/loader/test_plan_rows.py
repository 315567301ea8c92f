"""Rows of a plan by place."""

from lake import Lake
from loader.cursor import Cursor
from loader.plan_rows import PlanRows
from tests.loader import scenes


def test_every_planned_slot_has_its_pack_also_where_it_is_empty(scene: Lake) -> None:
    plan = scenes.scene_plan(scene, slots_per_step=5, epochs=3)
    assert plan.header.quality.empty_slots
    cursor = Cursor(
        plan_hash=plan.plan_hash, num_steps=plan.num_steps, slots_per_step=5, rank=1, world_size=2
    )
    positions = range(plan.num_steps * cursor.packs_per_step)
    rows = PlanRows(plan).read([cursor.place(position) for position in positions])
    for row in rows:
        planned = row.place.step * 5 + row.place.slot
        assert row.pack == (planned if row.place.slot < 5 else -1)
        assert row.epoch == plan.packs["epoch"][row.place.step * 5].as_py()
    assert any(not len(row) and row.pack >= 0 for row in rows)
    assert any(row.pack == -1 for row in rows)
