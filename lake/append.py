"""Appending to the tables that have no key, where a commit sent twice would double rows."""

from collections.abc import Sequence

import lance

from lake.errors import CommitConflictError, LakeError
from lake.store import Lake
from lake.tables import equals


def commit_append(
    lake: Lake, table: str, transactions: Sequence[lance.Transaction], commit_id: str
) -> int:
    """Commit appends as one version, once; returns the table's version that holds them.

    Args:
        lake: where.
        table: its rows have a column `commit_id`.
        transactions: as `write_fragments` returned them; their rows carry `commit_id`.
        commit_id: fresh, so that its rows tell whether the commit came through.

    Raises:
        CommitConflictError: it is unknown whether the append came through, or it did not.
    """
    options = dict(lake.storage_options)
    try:
        with lake.errors_named(f"commit {table}"):
            result = lance.LanceDataset.commit_batch(
                lake.table_uri(table), list(transactions), storage_options=options
            )
        return int(result["dataset"].version)
    except LakeError as error:
        # A commit is not idempotent: after a failure only the table can tell whether it came
        # through, and a request that timed out may still be on its way. So never twice.
        latest = lake.latest(table)
        if latest.count_rows(equals("commit_id", commit_id)):
            return int(latest.version)
        raise CommitConflictError(
            f"{error}; nothing became visible, run the same command again"
        ) from error
