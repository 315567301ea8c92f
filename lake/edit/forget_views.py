"""Forget what episodes are that edits made; that they were made stays in the log."""

import json
from collections.abc import Set as AbstractSet

import pyarrow as pa

from lake.retry import until_won
from lake.rewrite import rewrite_fragments
from lake.store import Lake
from lake.tables import OPTIONAL_TABLES


def forget_views(lake: Lake, episode_ids: AbstractSet[str]) -> None:
    """Take the facts of these episodes out of the edits that made them; twice is once.

    Raises:
        CommitConflictError: others were first every time.
        LakeError: the lake cannot be read or written.
    """

    def rewrite() -> None:
        table = lake.latest("edits")
        changed = []
        for row in table.to_table(filter="kind != 'relabel'").to_pylist():
            kept = [v for v in row["views"] if json.loads(v)["episode_id"] not in episode_ids]
            if len(kept) != len(row["views"]):
                changed.append({**row, "views": kept})
        if changed:
            merge = table.merge_insert("edit").when_matched_update_all()
            merge.execute(pa.Table.from_pylist(changed, OPTIONAL_TABLES["edits"]))

    until_won(lake, "forget views", rewrite)
    for fragment in lake.latest("edits").get_fragments():
        if fragment.num_deletions:
            rewrite_fragments(lake, "edits", [fragment.fragment_id])
