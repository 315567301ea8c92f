"""Which episodes a lake holds."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lake.edit.log import edit_state
from lake.edit.read_views import view_rows
from lake.ledger import ledger_rows
from lake.store import Lake

ADDRESS: Final = "address"


def visible_episodes(lake: Lake, columns: Sequence[str] = ("episode_id",)) -> pa.Table:
    """The episodes that were written and not hidden by an edit, and those that edits made of them.

    Args:
        lake: as seen by this handle, or pinned.
        columns: columns of `trajectories`; `video` cannot be asked for here.

    Returns:
        The columns, and `address` uint64: the row's address, by which it is read; in its order.
    """
    # The edits before the ledger would miss what they are about; the handle sees to the order.
    state = edit_state(lake)
    if not state.edits:
        return stored_episodes(lake, columns)
    keys = ("episode_id", "ingest_key", "commit_id")
    stored = stored_episodes(lake, list(dict.fromkeys([*columns, *keys])))
    parts = {part.ingest_key for view in state.views.values() for part in view.parts}
    keys_of_parts = pa.array(list(parts), pa.string())
    sources = stored.filter(pc.is_in(stored["ingest_key"], value_set=keys_of_parts))
    pairs = (sources[name].to_pylist() for name in ("ingest_key", "commit_id"))
    there = set(zip(*pairs, strict=True))
    hidden = pa.array(list(state.hidden), pa.string())
    seen = stored.filter(pc.invert(pc.is_in(stored["episode_id"], value_set=hidden)))
    seen = seen.select([*columns, ADDRESS])
    views = sorted(
        view.address
        for view in state.views.values()
        if view.episode_id not in state.hidden and all(p.stored in there for p in view.parts)
    )
    if not views:
        return seen
    made = view_rows(lake, views, columns)
    made = made.append_column(ADDRESS, pa.array(views, pa.uint64()))
    return pa.concat_tables([seen, made.cast(seen.schema)])


def stored_episodes(lake: Lake, columns: Sequence[str] = ("episode_id",)) -> pa.Table:
    """Rows of `trajectories` that the ledger names, hidden or not, as `visible_episodes`."""
    keys = ("ingest_key", "commit_id")
    wanted = list(dict.fromkeys([*columns, *keys]))
    # The ledger first: what it names is then in the later view of `trajectories`.
    ledger = ledger_rows(lake)
    with lake.errors_named("read trajectories"):
        rows = (
            lake.dataset("trajectories").scanner(columns=wanted, with_row_address=True).to_table()
        )
    named = pc.index_in(rows["ingest_key"], value_set=ledger["ingest_key"])
    commit = ledger["commit_id"].take(named)
    visible = rows.filter(pc.fill_null(pc.equal(rows["commit_id"], commit), fill_value=False))
    visible = _first_of_each(visible.sort_by("_rowaddr"))
    return visible.select([*columns, "_rowaddr"]).rename_columns([*columns, ADDRESS])


def _first_of_each(rows: pa.Table) -> pa.Table:
    """One row per key: a commit whose reply got lost may have been applied twice by a store."""
    if pc.count_distinct(rows["ingest_key"]).as_py() == rows.num_rows:
        return rows
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by("ingest_key").aggregate([("_row", "min")])["_row_min"]
    return rows.take(first.sort())
