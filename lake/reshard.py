"""Fewer, larger fragments: what many small commits left is rewritten, verified, then switched.

A table that grew by a small commit a day has a fragment of each, and every reader opens all of
them. Rows change their addresses here and nothing else. Versions from before stay as long as their
manifests do, and a plan's stay while it is tagged: a plan reads on at its own version.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import lance

from lake.errors import LakeError
from lake.rewrite import rewrite_fragments
from lake.store import Lake
from lake.tables import OPTIONAL_TABLES, TABLES

MIN_ROWS: Final = 2048
MAX_ROWS: Final = 8192
_PLAIN_ROWS: Final = 1 << 20
_RAW_BYTES: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Resharded:
    """What was done to a table, or what would be: fragments before and after, rows rewritten."""

    table: str
    fragments_before: int
    fragments_after: int
    rows: int


def reshard(
    lake: Lake,
    *,
    min_rows: int = MIN_ROWS,
    max_rows: int = MAX_ROWS,
    clean_older_than: timedelta | None = None,
    dry_run: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Resharded]:
    """Rewrite the small fragments of every table; what is done already is not done again.

    A fragment of `trajectories` is small below `min_rows`, and grows to `max_rows` at most; those
    of other tables hold more, since their rows are small. Each rewritten fragment is one commit, so
    who is killed goes on where it was.

    Args:
        lake: an unpinned lake; what it sees afterwards is the newest.
        min_rows: below it a fragment of `trajectories` is rewritten.
        max_rows: rows of a new one.
        clean_older_than: also remove versions that are older and that no tag holds, with the files
            that they alone need; None keeps all.
        dry_run: change nothing, say what would be done.
        progress: called with the table, fragments done and fragments to do.

    Raises:
        CorruptDataError: a row, or its copy, does not match its checksums; the fragments at fault
            were left as they were.
        CommitConflictError: another writer changed what was being rewritten; run again.
        LakeError: the lake cannot be read or written.
    """
    if lake.pinned is not None:
        raise LakeError(f"{lake.uri}: a lake pinned to versions cannot be rewritten")
    if not 0 < min_rows <= max_rows:
        raise LakeError(f"fragments of {min_rows} to {max_rows} rows make no sense")
    lake.refresh()
    tables = [table for table in (*TABLES, *OPTIONAL_TABLES) if lake.has_table(table)]
    done = []
    for table in tables:
        dataset = lake.latest(table)
        groups = _groups(table, dataset, min_rows, max_rows)
        rows = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
        done.append(
            Resharded(
                table=table,
                fragments_before=len(rows),
                fragments_after=len(rows) - sum(len(group) - 1 for group in groups),
                rows=sum(rows[number] for group in groups for number in group),
            )
        )
        for number, group in enumerate([] if dry_run else groups):
            rewrite_fragments(lake, table, group)
            if progress is not None:
                progress(table, number + 1, len(groups))
    lake.refresh()
    if clean_older_than is not None and not dry_run:
        for table in tables:
            with lake.errors_named(f"remove old versions of {table}"):
                lake.latest(table).cleanup_old_versions(
                    clean_older_than, error_if_tagged_old_versions=False
                )
        lake.refresh()
    return done


def _groups(
    table: str, dataset: lance.LanceDataset, min_rows: int, max_rows: int
) -> list[list[int]]:
    """Ids of fragments that are to become one each, in order.

    Small ones are joined up to the most that one may hold; one that is alone is left as it is,
    unless rows of it were deleted.
    """
    few, most = (min_rows, max_rows) if table == "trajectories" else (_PLAIN_ROWS // 2, _PLAIN_ROWS)
    groups: list[list[int]] = []
    rows = num_bytes = 0
    for fragment in dataset.get_fragments():
        count = fragment.count_rows()
        size = sum(file.file_size_bytes or 0 for file in fragment.metadata.files)
        if count >= few or (table == "raw" and size >= _RAW_BYTES // 2):
            continue
        over_bytes = table == "raw" and num_bytes + size > _RAW_BYTES
        if not groups or rows + count > most or over_bytes:
            groups.append([])
            rows = num_bytes = 0
        groups[-1].append(fragment.fragment_id)
        rows += count
        num_bytes += size
    deleted = {f.fragment_id for f in dataset.get_fragments() if f.num_deletions}
    return [group for group in groups if len(group) > 1 or deleted.intersection(group)]
