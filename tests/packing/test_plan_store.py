"""Saving and loading: whole or not at all, and what the hash says."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lake import Lake, open_lake
from packing.errors import PlanError
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import find_plan, list_plans, load_plan, load_plan_header, save_plan
from packing.stored_plan import StoredPlan, open_plan
from packing.window_spans import WindowSpans


@pytest.fixture
def plan(ten: Lake) -> Plan:
    return make_plan(
        ten, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=3, epochs=2
    )


def test_round_trip_by_name_hash_and_prefix(ten: Lake, plan: Plan) -> None:
    entry = save_plan(ten, plan, "mix")
    assert (entry.name, entry.plan_hash) == ("mix", plan.plan_hash)
    for name in ("mix", plan.plan_hash, plan.plan_hash[:8]):
        loaded = load_plan(open_lake(ten.uri), name)
        assert loaded.header == plan.header
        for table in ("packs", "episodes", "texts"):
            assert getattr(loaded, table).equals(getattr(plan, table))
    assert load_plan_header(ten, "mix") == plan.header


def test_saving_again_changes_nothing(ten: Lake, plan: Plan) -> None:
    first = save_plan(ten, plan)
    version = ten.latest("plans").version
    assert save_plan(ten, plan) == first
    assert ten.latest("plans").version == version
    assert list_plans(ten) == [first]
    assert first.name == plan.plan_hash[:12]


def test_pinned_versions_are_tagged_and_survive_clean_up(ten: Lake, plan: Plan) -> None:
    save_plan(ten, plan)
    for table, version in plan.header.versions.items():
        assert ten.latest(table).tags.list()[f"plan-{plan.plan_hash}"]["version"] == version


def test_names_are_unique(ten: Lake, plan: Plan) -> None:
    save_plan(ten, plan, "mix")
    other = make_plan(ten, spans=WindowSpans(horizon=5), budget_tokens=256, slots_per_step=3)
    with pytest.raises(PlanError, match="'mix' is taken by another plan"):
        save_plan(ten, other, "mix")
    with pytest.raises(PlanError, match="saved as 'mix' already"):
        save_plan(ten, plan, "mix2")
    with pytest.raises(PlanError, match="use letters"):
        save_plan(ten, other, "../mix")


def test_unknown_and_ambiguous_names(ten: Lake, plan: Plan) -> None:
    with pytest.raises(PlanError, match=r"no plan 'mix'; there are: none\. `headrace pack`"):
        load_plan(ten, "mix")
    save_plan(ten, plan, "mix")
    with pytest.raises(PlanError, match="no plan 'max'; there are: mix"):
        find_plan(ten, "max")


def replace_table(lake: Lake, plan: Plan, name: str, table: pa.Table) -> None:
    uri = f"{lake.uri}/plans/{plan.plan_hash}/{name}.lance"
    lance.write_dataset(table, uri, mode="overwrite")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("packs", "tokens"),
        ("packs", "pack"),
        ("episodes", "num_steps"),
        ("episodes", "content_sha256"),
        ("texts", "text"),
    ],
)
def test_changed_content_is_found(ten: Lake, plan: Plan, table: str, column: str) -> None:
    save_plan(ten, plan, "mix")
    before: pa.Table = getattr(plan, table)
    at = before.schema.get_field_index(column)
    swapped = pa.concat_arrays([before[column].combine_chunks()[-1:]] * before.num_rows)
    replace_table(ten, plan, table, before.set_column(at, before.schema.field(at), swapped))
    with pytest.raises(PlanError, match=r"plan mix: its content has hash .*make the plan again"):
        load_plan(ten, "mix")


def test_row_addresses_are_outside_the_hash(ten: Lake, plan: Plan) -> None:
    save_plan(ten, plan, "mix")
    moved = plan.episodes.set_column(
        2,
        plan.episodes.schema.field(2),
        pc.add(plan.episodes["address"], pa.scalar(7, pa.uint64())),
    )
    replace_table(ten, plan, "episodes", moved)
    assert load_plan(ten, "mix").plan_hash == plan.plan_hash


def test_lost_and_foreign_tables_are_one_clear_error(ten: Lake, plan: Plan) -> None:
    save_plan(ten, plan, "mix")
    replace_table(ten, plan, "packs", pa.table({"x": [1]}))
    with pytest.raises(PlanError, match="plan mix: its table packs"):
        load_plan(ten, "mix")
    shutil.rmtree(Path(ten.uri) / "plans" / plan.plan_hash / "texts.lance")
    replace_table(ten, plan, "packs", plan.packs)
    with pytest.raises(PlanError, match="plan mix: its table texts is unreadable"):
        load_plan(ten, "mix")


def test_plan_of_another_layout_version(ten: Lake, plan: Plan) -> None:
    save_plan(ten, plan, "mix")
    header = {**json.loads(plan.header.to_json()), "layout_version": 7}
    ten.latest("plans").update({"header_json": f"'{json.dumps(header)}'"})
    with pytest.raises(PlanError, match="layout version 7, this Headrace reads 2"):
        load_plan(ten, "mix")


@pytest.mark.parametrize("stop_before", ["packs", "episodes", "texts", "digests", "tag", "row"])
def test_a_save_killed_half_way_is_invisible_and_completed_by_the_next(
    ten: Lake, plan: Plan, stop_before: str
) -> None:
    script = f"""
import os, signal, sys
from lake import open_lake
from packing import plan_store
from packing.make_plan import make_plan
from packing.window_spans import WindowSpans

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

write = plan_store._write
def write_or_die(lake, table, uri):
    die() if uri.endswith("/{stop_before}.lance") else write(lake, table, uri)

plan_store._write = write_or_die
if {stop_before == "tag"}: plan_store._tag = die
if {stop_before == "row"}: plan_store.insert_new = die
lake = open_lake({ten.uri!r})
plan = make_plan(
    lake, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=3, epochs=2
)
plan_store.save_plan(lake, plan, "mix")
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()
    assert list_plans(ten) == []
    with pytest.raises(PlanError, match="no plan"):
        load_plan(ten, plan.plan_hash)
    save_plan(ten, plan, "mix")
    assert load_plan(ten, "mix").header == plan.header
    assert isinstance(open_plan(ten, "mix"), StoredPlan)


def test_a_tag_of_a_killed_save_moves_to_the_versions_of_this_one(ten: Lake, plan: Plan) -> None:
    tag = f"plan-{plan.plan_hash}"
    ten.latest("trajectories").tags.create(tag, 1)
    save_plan(ten, plan)
    version = ten.latest("trajectories").tags.list()[tag]["version"]
    assert version == plan.header.versions["trajectories"]
