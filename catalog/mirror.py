"""Keep plain copies of lake tables in DuckDB, by the difference of their fragments.

A Lance fragment is immutable but for what its metadata names: its data files (an update of
columns writes new ones) and its deletion file. So a fragment whose names are unchanged holds the
same rows, whatever happened to the table's version number, and a refresh reads the others only.
Appends, label updates, deletes, restores and a lake replaced by another under the same path
are all the same case.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

import duckdb
import lance

from lake.store import Lake
from lake.tables import TABLES

SCHEMA_SQL: Final = resources.files("catalog").joinpath("schema.sql").read_text(encoding="utf-8")
_LAYOUT: Final = hashlib.sha256(SCHEMA_SQL.encode()).hexdigest()[:16]

MIRRORED: Final = (*TABLES, "edits")
"""The lake's tables that are mirrored; a lake that was never edited has no `edits`."""

_SEEN: Final = ("trajectories", "commits", "edits")
"""Tables that decide which episodes are seen."""

Fragments = Mapping[str, Mapping[int, str]]
"""Lake table -> fragment id -> key; equal keys mean equal rows."""


@dataclass(frozen=True)
class MirrorState:
    """What a catalog file holds: fragments and versions of every lake table."""

    fragments: Fragments
    versions: Mapping[str, int]


@dataclass(frozen=True)
class MirrorChange:
    """Counts of one application of a difference."""

    fragments_loaded: int
    fragments_dropped: int
    rows_loaded: int


def lake_state(lake: Lake) -> MirrorState:
    """Fragments and versions of a pinned lake."""
    fragments: dict[str, dict[int, str]] = {table: {} for table in MIRRORED}
    for table in filter(lake.has_table, MIRRORED):
        with lake.errors_named(f"list the fragments of {table}"):
            fragments[table] = {f.fragment_id: _key(f) for f in lake.dataset(table).get_fragments()}
    versions = {table: v for table, v in lake.versions().items() if table in MIRRORED}
    return MirrorState(fragments, versions)


def stored_state(connection: duckdb.DuckDBPyConnection) -> MirrorState:
    """State of an open catalog file.

    Raises:
        duckdb.Error: the file is not a catalog, or of another layout.
    """
    if connection.execute("SELECT digest FROM mirror.layout").fetchall() != [(_LAYOUT,)]:
        raise duckdb.InvalidInputException("it is of another layout")
    fragments: dict[str, dict[int, str]] = {table: {} for table in MIRRORED}
    rows = connection.execute("SELECT lake_table, fragment, key FROM mirror.fragments")
    for table, fragment, key in rows.fetchall():
        fragments[table][fragment] = key
    versions = connection.execute("SELECT lake_table, version FROM mirror.versions").fetchall()
    return MirrorState(fragments, dict(versions))


def create_mirror(connection: duckdb.DuckDBPyConnection) -> None:
    """Create all tables and views in an empty database."""
    connection.execute(SCHEMA_SQL)
    connection.execute("INSERT INTO mirror.layout VALUES (?)", [_LAYOUT])


def apply(
    connection: duckdb.DuckDBPyConnection, lake: Lake, old: MirrorState, new: MirrorState
) -> MirrorChange:
    """Bring the mirrors from `old` to `new`, the state of the pinned `lake`.

    The caller owns the transaction.
    """
    loaded = dropped = rows = 0
    for table in MIRRORED:
        before, after = old.fragments[table], new.fragments[table]
        gone = [f for f, key in before.items() if after.get(f) != key]
        fresh = [f for f, key in after.items() if before.get(f) != key]
        if gone:
            connection.execute(
                f"DELETE FROM mirror.{table} WHERE fragment IN (SELECT unnest(?::BIGINT[]))",  # noqa: S608
                [gone],
            )
            connection.execute(
                "DELETE FROM mirror.fragments"
                " WHERE lake_table = ? AND fragment IN (SELECT unnest(?::BIGINT[]))",
                [table, gone],
            )
        if fresh:
            rows += _load(connection, lake, table, fresh)
            connection.execute(
                "INSERT INTO mirror.fragments SELECT ?, unnest(?::BIGINT[]), unnest(?::VARCHAR[])",
                [table, fresh, [after[f] for f in fresh]],
            )
        if table == "trajectories" and (gone or fresh):
            _find_doubled(connection, fresh)
        loaded += len(fresh)
        dropped += len(gone)
    if any(old.fragments[table] != new.fragments[table] for table in _SEEN):
        _keep_edits(connection)
    connection.execute("DELETE FROM mirror.versions")
    connection.execute(
        "INSERT INTO mirror.versions SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
        [list(new.versions), list(new.versions.values())],
    )
    return MirrorChange(loaded, dropped, rows)


def _load(
    connection: duckdb.DuckDBPyConnection, lake: Lake, table: str, fragments: list[int]
) -> int:
    wanted = set(fragments)
    dataset = lake.dataset(table)
    described = connection.execute(f"DESCRIBE mirror.{table}").fetchall()
    columns = [name for name, *_ in described if name not in {"fragment", "address"}]
    with lake.errors_named(f"read {table} for the catalog"):
        reader = dataset.scanner(
            columns=columns,
            fragments=[f for f in dataset.get_fragments() if f.fragment_id in wanted],
            with_row_address=True,
        ).to_reader()
        connection.register("lake_rows", reader)
        try:
            # A Lance row address is fragment << 32 | offset.
            counted = connection.execute(
                f"INSERT INTO mirror.{table} BY NAME"  # noqa: S608 - names from our own schema
                " SELECT * EXCLUDE (_rowaddr), (_rowaddr >> 32)::BIGINT AS fragment,"
                " _rowaddr AS address FROM lake_rows"
            ).fetchone()
        except duckdb.Error as error:
            # Nothing can be unregistered after it: the transaction is lost, and with it the file.
            if "LanceError" in str(error):
                raise OSError(str(error)) from error
            raise
        connection.unregister("lake_rows")
    return int(counted[0]) if counted else 0


def _keep_edits(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep `mirror.made` and `mirror.hidden` true: both from nothing, where there are edits."""
    edited = connection.execute("SELECT count(*) > 0 FROM mirror.edits").fetchone() == (True,)
    for name in ("made", "hidden"):
        connection.execute(f"DELETE FROM mirror.{name}")  # noqa: S608 - names from here
        if edited:
            connection.execute(f"INSERT INTO mirror.{name} FROM mirror.{name}_by_edits")


def _find_doubled(connection: duckdb.DuckDBPyConnection, fresh: list[int]) -> None:
    """Keep `mirror.doubled` true: only keys in it and in fresh fragments can have changed."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE suspects AS SELECT ingest_key FROM mirror.doubled"
        " UNION SELECT ingest_key FROM mirror.trajectories"
        " WHERE fragment IN (SELECT unnest(?::BIGINT[]))",
        [fresh],
    )
    connection.execute("DELETE FROM mirror.doubled")
    connection.execute(
        "INSERT INTO mirror.doubled SELECT ingest_key, address FROM mirror.trajectories"
        " SEMI JOIN suspects USING (ingest_key)"
        " QUALIFY row_number() OVER (PARTITION BY ingest_key, commit_id ORDER BY address) > 1"
    )


def _key(fragment: lance.LanceFragment) -> str:
    metadata = fragment.metadata
    names = [[file.path for file in metadata.files], str(metadata.deletion_file)]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]
