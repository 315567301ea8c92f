"""Open a published catalog file so that its replacement is seen."""

from pathlib import Path

import duckdb


def attached(path: Path) -> duckdb.DuckDBPyConnection:
    """A private connection with the catalog at `path` attached read-only as the default.

    `duckdb.connect(path)` shares one database per path within a process and would go on to
    return a file that has been replaced; an attachment of a private in-memory database does not.

    Raises:
        duckdb.Error: not a database, or damaged.
    """
    connection = duckdb.connect(":memory:")
    try:
        quoted = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS catalog (READ_ONLY)")
        connection.execute("USE catalog")
    except duckdb.Error:
        connection.close()
        raise
    return connection
