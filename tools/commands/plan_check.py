"""`headrace plan check`."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from packing.leak_check import LeakCheck


def check(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    train: Annotated[
        str,
        typer.Argument(
            metavar="TRAIN", help="A plan or a selection, by name, or a condition over episodes."
        ),
    ],
    against: Annotated[
        list[str], typer.Option(help="What it is evaluated on, named in the same way; repeat.")
    ],
    first: Annotated[int, typer.Option(min=0, help="Leaks to list of each set.")] = 10,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Find episodes that training and evaluation share, also under other names.

    The exit code is 1 where there are any. Compared are episode ids, content, the place in the
    source, and cameras, states and actions bit for bit. plan:NAME and selection:NAME say which is
    meant where both have the name.

    Example: headrace plan check robots.lake mix --against eval --against "split = 'test'"
    """
    from lake import open_lake
    from packing.leak_check import check_leaks

    opened = open_lake(lake, storage_options=storage_options(store))
    checks = check_leaks(opened, train, against)
    if as_json:
        typer.echo(json.dumps(_document(checks, first), ensure_ascii=False))
    else:
        for each in checks:
            _print(each, first)
    if any(each.num_leaks for each in checks):
        raise typer.Exit(1)


def _document(checks: "tuple[LeakCheck, ...]", first: int) -> dict[str, Any]:
    train = checks[0].train
    return {
        "train": {"kind": train.kind, "name": train.name, "episodes": len(train)},
        "leaks": sum(each.num_leaks for each in checks),
        "against": [
            {
                "kind": each.held_out.kind,
                "name": each.held_out.name,
                "episodes": len(each.held_out),
                "leaks": each.num_leaks,
                "by_dataset": each.counts(),
                "first": each.leaks.slice(0, first).to_pylist(),
            }
            for each in checks
        ],
    }


def _print(check: "LeakCheck", first: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    if not check.num_leaks:
        console.print(f"ok: {check.held_out} shares nothing with {check.train}", markup=False)
        return
    console.print(
        f"leak: {check.num_leaks} episodes of {check.held_out} are in {check.train}", markup=False
    )
    for dataset, kinds in check.counts().items():
        counts = ", ".join(f"{count} by {kind}" for kind, count in kinds.items())
        console.print(f"  {dataset}: {counts}", markup=False)
    grid = Table()
    for name in ("same", "evaluation", "training", "equal"):
        grid.add_column(name, overflow="fold")
    for row in check.leaks.slice(0, first).to_pylist():
        grid.add_row(row["kind"], row["episode_id"], row["trained_episode_id"], row["equal"])
    if first:
        Console(highlight=False, markup=False).print(grid)
    if check.num_leaks > first:
        console.print(f"  and {check.num_leaks - first} more (--first N lists more)", markup=False)
