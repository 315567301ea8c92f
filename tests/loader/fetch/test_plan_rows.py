"""Rows of a plan by place, from memory and from the lake; what is known of its episodes."""

import numpy as np
import pytest

from lake import Lake
from loader import LoaderError
from loader.cursor import Cursor
from loader.fetch.plan_rows import PackRow, PlanRows
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.stored_plan import StoredPlan, open_plan
from tests.loader import scenes


def every_row(rows: PlanRows, *, rank: int, world_size: int) -> list[PackRow]:
    """All packs of a rank, in order."""
    cursor = Cursor(
        plan_hash=rows.plan.plan_hash,
        num_steps=rows.plan.num_steps,
        slots_per_step=rows.plan.header.slots_per_step,
        rank=rank,
        world_size=world_size,
    )
    positions = range(rows.plan.num_steps * cursor.packs_per_step)
    return rows.read([cursor.place(position) for position in positions])


def test_every_planned_slot_has_its_pack_also_where_it_is_empty(scene: Lake) -> None:
    plan = scenes.scene_plan(scene, slots_per_step=5, epochs=3)
    assert plan.header.quality.empty_slots
    rows = every_row(PlanRows(plan), rank=1, world_size=2)
    for row in rows:
        planned = row.place.step * 5 + row.place.slot
        assert row.pack == (planned if row.place.slot < 5 else -1)
        assert row.epoch == plan.packs["epoch"][row.place.step * 5].as_py()
        spans = plan.packs["span_id"][planned].as_py() if row.pack >= 0 else []
        assert row.span_id.tolist() == spans
    assert any(not len(row) and row.pack >= 0 for row in rows)
    assert any(row.pack == -1 for row in rows)


def test_a_stored_plan_has_the_same_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    lake = scenes.scene_lake(tmp_path_factory.mktemp("stored"))
    plan = scenes.scene_plan(lake, slots_per_step=5, epochs=3)
    save_plan(lake, plan, "mix")
    stored = open_plan(lake, "mix")
    assert isinstance(stored, StoredPlan)
    ours, theirs = PlanRows(plan), PlanRows(stored)
    for mine, other in zip(
        every_row(ours, rank=1, world_size=2), every_row(theirs, rank=1, world_size=2), strict=True
    ):
        for name in PackRow.__dataclass_fields__:
            assert np.array_equal(getattr(mine, name), getattr(other, name)), name
    for name in ("address", "spec", "dataset", "embodiment", "num_steps", "images_at", "state_at"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.episode_id.equals(theirs.episode_id)
    assert [theirs.text_ids(text).tolist() for text in range(plan.texts.num_rows)] == (
        plan.texts["token_ids"].to_pylist()
    )


def test_content_is_found_by_address(plan: Plan) -> None:
    rows = PlanRows(plan)
    addresses = plan.episodes["address"].to_pylist()
    found = [rows.content_key(address) for address in addresses]
    assert found == plan.episodes["content_sha256"].to_pylist()
    for stranger in (max(addresses) + 1, 1 << 60):
        with pytest.raises(LoaderError, match=f"no episode at address {stranger}"):
            rows.content_key(stranger)
