"""The commit ledger: which rows of `trajectories` count.

One row per episode, keyed by `ingest_key`, naming the commit whose trajectory row is the
episode. A trajectory row is visible when the ledger row of its `ingest_key` names its
`commit_id`. The ledger is written last and insert-only, so

- a writer killed before it leaves rows that nobody sees: *orphans*. The next writer finds them
  by their key and adopts them (it writes the ledger row with *their* commit id), since all that
  belongs to them was written before them;
- of writers racing with the same episode one gets the ledger row; the rows of the others stay
  invisible.
"""

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake.insert import insert_new
from lake.store import Lake


@dataclass(frozen=True)
class LedgerEntry:
    """An episode and the commit that holds its row."""

    ingest_key: str
    commit_id: str
    episode_id: str


def new_commit_id() -> str:
    """A fresh commit id: time-ordered, unique."""
    return f"{time.time_ns():016x}-{uuid.uuid4().hex[:12]}"


def ledger_rows(lake: Lake) -> pa.Table:
    """`ingest_key`, `commit_id`, `episode_id` of every visible episode, as the lake is seen."""
    columns = ["ingest_key", "commit_id", "episode_id"]
    with lake.errors_named("read the ledger"):
        return lake.dataset("commits").to_table(columns=columns)


def orphans(lake: Lake, ledger: pa.Table) -> list[LedgerEntry]:
    """Rows of `trajectories` whose key the ledger does not know, one per key, oldest first."""
    columns = ["ingest_key", "commit_id", "episode_id"]
    with lake.errors_named("look for rows to adopt"):
        table = lake.dataset("trajectories")
        if table.count_rows() == ledger.num_rows:
            return []  # every row has its ledger row: the usual case needs no scan
        rows = table.to_table(columns=columns)
    unknown = pc.invert(pc.is_in(rows["ingest_key"], value_set=ledger["ingest_key"]))
    found: dict[str, LedgerEntry] = {}
    for row in rows.filter(unknown).to_pylist():
        found.setdefault(row["ingest_key"], LedgerEntry(**row))
    return list(found.values())


def record(lake: Lake, entries: Sequence[LedgerEntry], versions: dict[str, int]) -> int:
    """Make episodes visible, all at once; returns how many were not visible before.

    Args:
        lake: where.
        entries: distinct ingest keys.
        versions: table -> version that held the rows, kept for audit.
    """
    if not entries:
        return 0
    text = json.dumps(versions, sort_keys=True)
    rows = pa.table(
        {
            "ingest_key": [entry.ingest_key for entry in entries],
            "commit_id": [entry.commit_id for entry in entries],
            "episode_id": [entry.episode_id for entry in entries],
            "versions_json": [text] * len(entries),
            "time_ns": [time.time_ns()] * len(entries),
        }
    )
    return insert_new(lake, "commits", rows)
