"""Insert-only, keyed, idempotent writes: the one way rows enter every table but `trajectories`."""

import pyarrow as pa

from lake.errors import LakeError
from lake.retry import until_won
from lake.store import Lake
from lake.tables import primary_key, schema_of


def insert_new(lake: Lake, table: str, rows: pa.Table) -> int:
    """Insert the rows whose key the table does not hold yet, as one atomic commit.

    Of several writers racing with the same key exactly one inserts it (the key columns are
    marked as primary key, so Lance detects the conflict and looks again). Repeating the call
    changes nothing, which is why it may be retried after any failure.

    Args:
        lake: where to.
        table: any table with a primary key.
        rows: columns as in `TABLES[table]`; columns left out become null. Keys must be distinct.

    Returns:
        Number of rows inserted.

    Raises:
        LakeError: no such table, unknown columns, or a key missing or given twice.
        CommitConflictError: other writers kept winning the race for the next version.
    """
    lake.table_uri(table)  # names an unknown table
    keys = primary_key(table)
    schema = schema_of(table)
    if not keys:
        raise LakeError(f"table {table} has no key to insert by")
    if unknown := sorted(set(rows.column_names) - set(schema.names)):
        raise LakeError(f"table {table}: unknown columns: {', '.join(unknown)}")
    if missing := [key for key in keys if key not in rows.column_names]:
        raise LakeError(f"table {table}: an insert lacks its key column {', '.join(missing)}")
    if rows.num_rows == 0:
        return 0
    if rows.group_by(keys).aggregate([]).num_rows != rows.num_rows:
        raise LakeError(f"table {table}: the same key twice in one insert")
    whole = pa.Table.from_arrays(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )

    def insert() -> int:
        merge = lake.latest(table).merge_insert(keys).when_not_matched_insert_all()
        return int(merge.execute(whole)["num_inserted_rows"])

    return until_won(lake, f"insert into {table}", insert)
