"""Plans read in parts: the same rows as in memory, few of them held, and never a wrong one."""

import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lake import Lake
from packing import plan_digests, stored_plan
from packing.errors import PlanError
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_digests import digests_of
from packing.plan_store import load_plan, save_plan
from packing.stored_plan import StoredPlan, open_plan
from packing.window_spans import WindowSpans


@pytest.fixture
def plan(ten: Lake, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan of several chunks, saved as `mix`."""
    monkeypatch.setattr(plan_digests, "_MOST_ROWS", 4)
    made = make_plan(
        ten, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=3, epochs=2
    )
    save_plan(ten, made, "mix")
    return made


def opened(lake: Lake, name: str = "mix") -> StoredPlan:
    plan = open_plan(lake, name)
    assert isinstance(plan, StoredPlan)
    return plan


def folder(lake: Lake, plan: Plan, table: str) -> Path:
    return Path(lake.uri) / "plans" / plan.plan_hash / f"{table}.lance"


def test_it_gives_what_the_plan_in_memory_gives(ten: Lake, plan: Plan) -> None:
    rows = plan.packs.num_rows
    assert rows > 12
    for name in ("mix", plan.plan_hash, plan.plan_hash[:8]):
        stored = opened(ten, name)
        assert (stored.header, stored.num_steps) == (plan.header, plan.num_steps)
        assert stored.episodes.equals(plan.episodes)
        assert stored.texts.equals(plan.texts)
        wanted: list[int]
        for wanted in ([0], [rows - 1], [5, 3, 4, 3], list(range(rows)), [rows - 1, 0], []):
            assert stored.take_packs(wanted).equals(plan.take_packs(wanted))


def test_few_chunks_are_held_and_each_is_read_once_on_the_way(
    ten: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = opened(ten)
    reads: list[tuple[str, int, int]] = []
    read = StoredPlan._read

    def counted(self: StoredPlan, table: str, first: int, stop: int) -> pa.Table:
        reads.append((table, first, stop))
        return read(self, table, first, stop)

    monkeypatch.setattr(StoredPlan, "_read", counted)
    for row in range(plan.packs.num_rows - 1):
        stored.take_packs([row, row + 1])
        assert len(stored._held) <= stored_plan._CHUNKS_HELD
    last = plan.packs.num_rows
    assert reads == [("packs", at, min(at + 4, last)) for at in range(0, last, 4)]


def test_threads_share_it(ten: Lake, plan: Plan) -> None:
    stored = opened(ten)
    rows = plan.packs.num_rows

    def read(seed: int) -> bool:
        wanted = [(seed * 7 + step * 5) % rows for step in range(20)]
        same: bool = stored.take_packs(wanted).equals(plan.take_packs(wanted))
        return same and bool(stored.episodes.equals(plan.episodes))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(8)))


def test_it_may_be_pickled(ten: Lake, plan: Plan) -> None:
    stored = opened(ten)
    stored.take_packs([0])
    again: StoredPlan = pickle.loads(pickle.dumps(stored))
    assert again.header == plan.header
    assert again.take_packs([7]).equals(plan.take_packs([7]))


def test_chunks_hold_a_bounded_number_of_spans(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [len(row) for row in plan.packs["span_id"].to_pylist()]
    monkeypatch.setattr(plan_digests, "_MOST_SPANS", 2 * max(spans) - 1)
    chunks = [row for row in digests_of(plan).to_pylist() if row["table"] == "packs"]
    held = [sum(spans[c["first_row"] :][: c["num_rows"]]) for c in chunks]
    assert sum(held) == sum(spans)
    assert max(held) < 2 * max(spans)
    assert sum(chunk["num_rows"] for chunk in chunks) == len(spans)
    monkeypatch.setattr(plan_digests, "_MOST_SPANS", 1)  # a pack is never cut
    chunks = [row for row in digests_of(plan).to_pylist() if row["table"] == "packs"]
    assert [c["num_rows"] for c in chunks if spans[c["first_row"]]] == [1] * sum(map(bool, spans))


def flipped(file: Path, at: int) -> Callable[[], None]:
    """Flip a bit of a byte; call what is returned to put it back."""
    data = bytearray(file.read_bytes())
    before = bytes(data)
    data[at] ^= 0x10
    file.write_bytes(data)

    def restore() -> None:
        file.write_bytes(before)

    return restore


@pytest.mark.parametrize("table", ["packs", "episodes", "texts", "digests"])
def test_a_flipped_bit_is_an_error_or_changes_nothing(ten: Lake, plan: Plan, table: str) -> None:
    (file,) = (folder(ten, plan, table) / "data").iterdir()
    size, said = file.stat().st_size, list[str]()
    every = list(range(plan.packs.num_rows))
    for at in range(3, size, max(size // 40, 1)):
        restore = flipped(file, at)
        try:
            stored = opened(ten)
            found = [stored.take_packs(every), stored.episodes, stored.texts]
        except PlanError as error:
            said.append(str(error))
        else:
            wanted = [plan.packs, plan.episodes, plan.texts]
            assert all(a.equals(b) for a, b in zip(found, wanted, strict=True))
        finally:
            restore()
    assert len(said) > 10
    assert all("plan mix" in words or plan.plan_hash in words for words in said)
    assert all(table in words for words in said)
    assert opened(ten).take_packs([3]).equals(plan.take_packs([3]))


def replace_row(table: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    at = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(
        at, table.schema.field(at), pa.array(values, table.schema.field(at).type)
    )


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "rows"),
    [
        ("packs", "tokens", 6, 1, "rows 4 to 7"),
        ("packs", "start", 0, [1], "rows 0 to 3"),
        ("episodes", "address", 9, 77, "rows 8 to 9"),
        ("episodes", "content_sha256", 5, b"\1" * 32, "rows 4 to 7"),
        ("texts", "token_ids", 0, [5], "rows 0 to"),
    ],
)
def test_changed_rows_are_named(
    ten: Lake, plan: Plan, table: str, column: str, row: int, value: Any, rows: str
) -> None:
    changed = replace_row(getattr(plan, table), column, row, value)
    lance.write_dataset(changed, folder(ten, plan, table), mode="overwrite")
    stored = opened(ten)
    with pytest.raises(PlanError, match=f"plan {plan.plan_hash}: table {table}, {rows}.* restore"):
        stored.take_packs([0, 6]) if table == "packs" else getattr(stored, table)


def test_rows_that_are_untouched_are_given_beside_changed_ones(ten: Lake, plan: Plan) -> None:
    changed = replace_row(plan.packs, "tokens", 6, 1)
    lance.write_dataset(changed, folder(ten, plan, "packs"), mode="overwrite")
    stored = opened(ten)
    assert stored.take_packs([0, 8]).equals(plan.take_packs([0, 8]))
    with pytest.raises(PlanError, match="rows 4 to 7"):
        stored.take_packs([4])


def test_lost_tables_are_one_clear_error(ten: Lake, plan: Plan) -> None:
    stored = opened(ten)
    for table in ("packs", "episodes"):
        shutil.rmtree(folder(ten, plan, table))
    with pytest.raises(
        PlanError, match=r"table packs, rows 0 to 3: .* cannot be read: .*not found"
    ):
        stored.take_packs([0])
    with pytest.raises(PlanError, match=r"table episodes, rows 0 to 9: .* cannot be read"):
        _ = stored.episodes


def test_rows_that_arrived_damaged_are_read_once_more(
    ten: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = opened(ten)
    rows, reads = StoredPlan._rows, list[int]()

    def damaged_at_first(self: StoredPlan, table: str, first: int, stop: int) -> pa.Table:
        reads.append(first)
        found = rows(self, table, first, stop)
        return replace_row(found, "tokens", 1, 1) if len(reads) == 1 else found

    monkeypatch.setattr(StoredPlan, "_rows", damaged_at_first)
    assert stored.take_packs([6]).equals(plan.take_packs([6]))
    assert reads == [4, 4]


def test_reads_go_through_what_repeats_them(ten: Lake, plan: Plan) -> None:
    said: list[str] = []

    def reading(what: Callable[[], str], read: Callable[[], pa.Table]) -> pa.Table:
        said.append(what())
        read()
        return read()

    stored = opened(ten).read_by(ten, reading)
    assert stored.take_packs([6]).equals(plan.take_packs([6]))
    assert stored.texts.equals(plan.texts)
    assert said == ["the plan's table packs", "the plan's table texts"]


def test_a_short_table_is_an_error(ten: Lake, plan: Plan) -> None:
    lance.write_dataset(plan.packs[:6], folder(ten, plan, "packs"), mode="overwrite")
    stored = opened(ten)
    stored.take_packs([3])
    with pytest.raises(PlanError, match="rows 4 to 7"):
        stored.take_packs([4])


def test_a_header_or_digests_of_another_plan_are_refused(ten: Lake, plan: Plan) -> None:
    other = make_plan(ten, spans=WindowSpans(horizon=5), budget_tokens=256, slots_per_step=3)
    lance.write_dataset(digests_of(other), folder(ten, plan, "digests"), mode="overwrite")
    with pytest.raises(PlanError, match="plan mix: its header, or its table digests"):
        open_plan(ten, "mix")
    with pytest.raises(PlanError, match="its digests are of"):
        StoredPlan(ten, plan.header, digests_of(other))
    gap = digests_of(plan).filter(pa.compute.field("first_row") != 4)
    with pytest.raises(PlanError, match="do not follow each other"):
        StoredPlan(ten, plan.header, gap)


def test_a_plan_saved_before_there_were_digests_is_loaded_whole(ten: Lake, plan: Plan) -> None:
    shutil.rmtree(folder(ten, plan, "digests"))
    loaded = open_plan(ten, "mix")
    assert isinstance(loaded, Plan)
    assert loaded.header == load_plan(ten, "mix").header
    assert loaded.packs.equals(plan.packs)
