"""`headrace sql`."""

import sys
from typing import Annotated

import pyarrow as pa
import typer

from lake.errors import HeadraceError
from tools.commands.lake_options import StorageOptions, storage_options


class UsageError(HeadraceError):
    """Options that exclude each other."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql")(sql)


def sql(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    query: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="A query; - reads it from stdin; none lists tables."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print only CSV on stdout.")] = False,
    rows: Annotated[
        int, typer.Option(min=0, help="Rows of a printed table, 0 for all. JSON and CSV have all.")
    ] = 100,
    refresh: Annotated[
        bool, typer.Option("--refresh/--no-refresh", help="Bring the catalog up to date first.")
    ] = True,
    store: StorageOptions = None,
) -> None:
    """Query a lake with DuckDB SQL.

    `headrace sql LAKE` lists the tables and their columns. `steps('EPISODE_ID')` is a table of
    one episode's signals, a row per step.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other")
    from rich.console import Console

    from catalog import Catalog
    from lake import open_lake
    from tools.commands import tabular

    text = sys.stdin.read() if query == "-" else query
    opened = open_lake(lake, storage_options=storage_options(store))
    with Console(stderr=True).status("refreshing the catalog"):
        catalog = Catalog(opened, refresh=refresh)
    with catalog:
        table = catalog.columns() if text is None else catalog.query(text)
    if as_json:
        tabular.print_json(table)
    elif as_csv:
        tabular.print_csv(table)
    elif text is None:
        _print_tables(table)
    else:
        tabular.print_rows(table, max_rows=rows)


def _print_tables(columns: pa.Table) -> None:
    from rich.console import Console
    from rich.table import Table

    of_table: dict[str, list[str]] = {}
    for row in columns.to_pylist():
        kind = "STRUCT(...)[]" if row["type"].startswith("STRUCT") else row["type"]
        of_table.setdefault(row["table"], []).append(f"{row['column']} {kind.lower()}")
    grid = Table(show_lines=True)
    grid.add_column("table", style="bold", no_wrap=True)
    grid.add_column("columns", overflow="fold")
    for name, described in of_table.items():
        grid.add_row(name, ", ".join(described))
    grid.add_row("steps('EPISODE_ID')", "step bigint, time_s double, timestamp_ns bigint, features")
    Console(highlight=False).print(grid)
