"""`headrace select`."""

from typing import Annotated

import typer

from tools.commands.lake_options import StorageOptions, storage_options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("select")(select)


def select(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    name: Annotated[
        str | None, typer.Argument(help="Name of the selection; none lists all selections.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="A condition over episodes, or SQL with a column episode_id; none shows NAME.",
        ),
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the episode ids, one a line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    store: StorageOptions = None,
) -> None:
    """Freeze the episodes that a query gives now.

    They keep a name, for plans to be made of, whatever is ingested or labelled later.

    Example: headrace select robots.lake good "success and num_steps > 30"
    """
    import json

    from rich.console import Console

    from catalog import Catalog, freeze_selection, load_selection
    from lake import open_lake
    from tools.commands import tabular

    opened = open_lake(lake, storage_options=storage_options(store))
    if name is None:
        with Catalog(opened) as catalog:
            table = catalog.query(
                "SELECT name, num_episodes AS episodes, selection_hash[:16] AS hash, sql,"
                " created_at FROM selections ORDER BY created_at, name"
            )
        if as_json:
            tabular.print_json(table)
        else:
            tabular.print_rows(table)
        return
    if query is None:
        selection = load_selection(opened, name)
    else:
        selection = freeze_selection(opened, query, name=name)
    if as_json:
        document = {
            "name": selection.name,
            "hash": selection.hash,
            "sql": selection.sql,
            "num_episodes": len(selection.episode_ids),
            "versions": dict(selection.versions),
            "episode_ids": list(selection.episode_ids),
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
    elif ids:
        typer.echo("\n".join(selection.episode_ids))
    else:
        console = Console(highlight=False, soft_wrap=True)
        count = len(selection.episode_ids)
        console.print(
            f"{selection.name}: {count} episodes, hash {selection.hash[:16]}, {selection.sql}",
            markup=False,
        )
