"""`headrace lake purge`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tools.commands.lake_edit import AsJson, DryRun, LakeArgument, Who, Why, author, hidden_ids
from tools.commands.lake_options import StorageOptions, storage_options


def purge(
    lake: LakeArgument,
    where: Annotated[
        str | None,
        typer.Option(
            help="A condition over hidden_episodes, or SQL with a column episode_id; without it"
            " only what an earlier purge did not come to is done."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Give up the plans that pin them, packs included.")
    ] = False,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="Erase what killed writers left too: files that no version names, recordings"
            " without an episode. Nothing else may be writing to the lake.",
        ),
    ] = False,
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Erase deleted episodes from all tables and all old versions, for ever.

    Versions that no plan pins go too. Refused while a plan pins the episodes. Killed, run it again.

    Example: headrace lake purge robots.lake --where "why = 'consent withdrawn'"
    """
    from catalog.location import catalog_path
    from lake import open_lake
    from lake.purge import purge as run

    opened = open_lake(lake, storage_options=storage_options(store))
    ids = [] if where is None else hidden_ids(opened, where)
    done = run(opened, ids, author(who, why), force=force, sweep=sweep, dry_run=dry_run)
    if not dry_run:
        # Beside an object store it lies with the user.
        catalog_path(opened).unlink(missing_ok=True)
    if as_json:
        typer.echo(json.dumps({**asdict(done), "dry_run": dry_run}, ensure_ascii=False))
        return
    what = "would be erased (dry run)" if dry_run else "erased"
    rows = ", ".join(f"{table} {count}" for table, count in done.rows.items() if count)
    typer.echo(f"{len(done.episode_ids)} episodes {what}; rows: {rows or 'none'}")
    if done.plans:
        gone = "would be given up" if dry_run else "given up"
        typer.echo(f"plans {gone}: {', '.join(done.plans)}")
    if done.unnamed_files:
        typer.echo(
            f"{done.unnamed_files} files are left that no version names: of a writer at work, or of"
            " one that was killed, and then they may hold anything; --sweep deletes them"
        )
