"""Query the catalog of a lake."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import pyarrow as pa

from catalog.attach import attached
from catalog.errors import CatalogError, first_line, one_line, require_unicode
from catalog.location import catalog_path
from catalog.mirror import stored_state
from catalog.publish import FileIdentity, file_identity
from catalog.refresh import CatalogRefresh, refresh_catalog
from catalog.steps import STEPS_MACRO, named_episodes, steps_table, table_name
from lake.errors import EpisodeNotFoundError
from lake.read import read_signals
from lake.store import Lake

# PIVOT is a MULTI to DuckDB; it creates nothing that outlives it.
_READING: Final = {
    duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI
}  # fmt: skip
# Nothing a query says may read or write a file, load an extension, or see Python's variables.
_SANDBOX: Final = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Catalog:
    """A read-only view of a lake's catalog; use one per thread.

    Any number of processes may query while another refreshes. When a refresh has published a new
    catalog, by this or another process, the next query sees it. Queries can only read, and only
    the catalog: SQL that came from elsewhere is safe to run.

    Attributes:
        lake: the lake.
        path: the catalog file.
    """

    def __init__(self, lake: Lake, path: Path | None = None, *, refresh: bool = True) -> None:
        """Open the catalog of `lake`.

        Args:
            lake: the lake; a pinned one needs a `path` of its own.
            path: the catalog file; `catalog_path(lake)` by default.
            refresh: bring it up to date first.

        Raises:
            CatalogError: `refresh` is False and there is no catalog, or it cannot be read.
        """
        self.lake = lake
        self.path = path or catalog_path(lake)
        self._given_path = path
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._identity: FileIdentity | None = None
        self._versions: dict[str, int] = {}
        if refresh:
            self.refresh()
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def versions(self) -> dict[str, int]:
        """Lake table -> version that the next query sees."""
        self._open()
        return dict(self._versions)

    def refresh(self) -> CatalogRefresh:
        """Bring the catalog up to date with the lake; see `refresh_catalog`."""
        return refresh_catalog(self.lake, self._given_path)

    def query(self, sql: str, params: Sequence[Any] = ()) -> pa.Table:
        """Run one reading statement.

        Args:
            sql: DuckDB SQL over the catalog's tables; `steps('episode_id')` gives an episode's
                signals, a row per step.
            params: values of `?` or `$1` in it.

        Raises:
            CatalogError: the SQL is wrong, or does more than read.
            EpisodeNotFoundError: `steps(...)` names no visible episode.
        """
        connection = self._open()
        registered: dict[str, str] = {}
        try:
            _require_reading(connection, sql)
            registered = self._register_steps(connection, sql, params)
            return connection.sql(sql, params=list(params)).to_arrow_table()
        except duckdb.Error as error:
            for episode_id in named_episodes(sql, params):
                if table_name(episode_id) in str(error) and episode_id not in registered:
                    raise EpisodeNotFoundError(
                        f"steps({episode_id!r}): no visible episode of this id; look for it in"
                        " the table episodes"
                    ) from error
            if re.search(r"\bsteps_[0-9a-f]{32}\b", str(error)):
                raise CatalogError(
                    "steps(...) takes one episode id as a literal or a parameter, as in"
                    " steps('demo/episode_3'); for more episodes write UNION ALL"
                ) from error
            raise CatalogError(f"{one_line(error)} {self._hint(connection)}") from error
        finally:
            for name in registered.values():
                connection.unregister(name)

    def columns(self) -> pa.Table:
        """Columns of all tables: `table`, `column` and `type`, in order."""
        return self.query(
            'SELECT table_name AS "table", column_name AS "column", data_type AS type'
            " FROM duckdb_columns() WHERE database_name = 'catalog' AND schema_name = 'main'"
            " ORDER BY table_name, column_index"
        )

    def close(self) -> None:
        """Close the connection; a later query opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> duckdb.DuckDBPyConnection:
        """The connection, made anew where the file was replaced."""
        identity = file_identity(self.path)
        if self._connection is not None and identity == self._identity:
            return self._connection
        if identity is None:
            raise CatalogError(
                f"{self.path}: no catalog yet; refresh it (`headrace sql` without --no-refresh)"
            )
        self.close()
        try:
            connection = attached(self.path)
            state = stored_state(connection)
            for statement in (STEPS_MACRO, *_SANDBOX):
                connection.execute(statement)
        except duckdb.Error as error:
            raise CatalogError(
                f"{self.path}: the catalog cannot be read ({first_line(error)}); refresh it"
            ) from error
        self._connection, self._identity = connection, identity
        self._versions = dict(state.versions)
        return connection

    def _register_steps(
        self, connection: duckdb.DuckDBPyConnection, sql: str, params: Sequence[Any]
    ) -> dict[str, str]:
        """Read the episodes that `steps(...)` calls name; episode id -> registered table."""
        names = named_episodes(sql, params)
        if not names:
            return {}
        rows = connection.execute(
            "SELECT address FROM mirror.visible WHERE episode_id IN (SELECT unnest(?::VARCHAR[]))",
            [names],
        ).fetchall()
        lake = self.lake.at(self._versions)
        registered: dict[str, str] = {}
        for signals in read_signals(lake, [address for (address,) in rows]) if rows else ():
            registered[signals.episode_id] = table_name(signals.episode_id)
            connection.register(registered[signals.episode_id], steps_table(signals))
        return registered

    def _hint(self, connection: duckdb.DuckDBPyConnection) -> str:
        rows = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'catalog'"
            " AND schema_name = 'main' AND NOT internal ORDER BY view_name"
        ).fetchall()
        return f"Tables: {', '.join(name for (name,) in rows)}, steps('episode_id')"


def _require_reading(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse anything but one statement that reads.

    Raises:
        CatalogError: none, several, or one that writes or changes settings.
        duckdb.Error: it cannot be parsed.
    """
    require_unicode(sql)
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise CatalogError(f"one SQL statement at a time, not {len(statements)}")
    kind = statements[0].type
    if kind not in _READING:
        raise CatalogError(
            f"{kind.name} is not possible: a catalog is only read (`headrace label` changes"
            " labels, `headrace ingest` adds episodes)"
        )
