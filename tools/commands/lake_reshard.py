"""`headrace lake reshard`."""

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from tools.commands.lake_edit import AsJson, DryRun, LakeArgument
from tools.commands.lake_options import StorageOptions, storage_options


def reshard(
    lake: LakeArgument,
    min_rows: Annotated[
        int, typer.Option(help="Fragments of episodes with fewer rows are joined.")
    ] = 2048,
    max_rows: Annotated[int, typer.Option(help="Most rows of a joined one.")] = 8192,
    clean_days: Annotated[
        float | None,
        typer.Option(
            help="Also remove versions older than this that no plan pins, with their files; by"
            " default every version stays."
        ),
    ] = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Join the small fragments that many small commits left, each copy verified before it counts.

    Plans read on at the versions they pin. Killed, run it again: it goes on where it was.
    """
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from lake import open_lake
    from lake.reshard import reshard as run

    opened = open_lake(lake, storage_options=storage_options(store))
    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, int] = {}

        def progress(table: str, done: int, total: int) -> None:
            task = tasks.setdefault(table, len(tasks))
            if task == len(bar.tasks):
                bar.add_task(table, total=total)
            bar.update(bar.task_ids[task], completed=done)

        done = run(
            opened,
            min_rows=min_rows,
            max_rows=max_rows,
            clean_older_than=None if clean_days is None else timedelta(days=clean_days),
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in done]))
        return
    grid = Table("table", "fragments", "after", "rows rewritten")
    for entry in done:
        before, after = entry.fragments_before, entry.fragments_after
        if before != after or entry.rows:
            grid.add_row(entry.table, str(before), str(after), str(entry.rows))
    if not grid.rows:
        typer.echo("nothing to join")
        return
    Console(highlight=False).print(grid)
    if dry_run:
        typer.echo("dry run: nothing was changed")
