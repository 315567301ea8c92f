"""`headrace bench NAME`: one subcommand per bench."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from tools.commands.bench_cost import JsonTo, Quick, cost
from tools.commands.bench_loader import loader

_PLAIN: Final = {
    "ingest": "Stream copy against a plain demux of the same files.",
    "catalog": "Refresh and queries over many episodes.",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    benches = typer.Typer(
        help="Measure a part of Headrace against its limit: all contenders read the same data in"
        " the same order.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, what in _PLAIN.items():
        benches.command(name, help=what)(_plain(name))
    benches.command("loader")(loader)
    benches.command("packing")(packing)
    benches.command("training")(training)
    benches.command("cost")(cost)
    app.add_typer(benches, name="bench")


def _plain(name: str) -> Callable[..., None]:
    def bench(quick: Quick = False, json_to: JsonTo = None) -> None:
        from tools.bench.framework import report

        result = importlib.import_module(f"tools.bench.{name}").run(quick)
        report(result, quick=quick, json_to=json_to)

    return bench


def packing(
    quick: Quick = False,
    json_to: JsonTo = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw it: png, svg or pdf.")
    ] = None,
) -> None:
    """Packing against what others pack with, and what shuffling windows costs."""
    from tools.bench import packing as bench
    from tools.bench.framework import report

    result = bench.run(quick)
    report(result, quick=quick, json_to=json_to)
    if picture:
        bench.picture(result, picture)


def training(
    quick: Quick = False,
    json_to: JsonTo = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the loss curves: png, svg or pdf."),
    ] = None,
) -> None:
    """A packed training step against the same spans padded, and both trained side by side."""
    from tools.bench import training as bench
    from tools.bench.framework import report

    report(bench.run(quick, picture), quick=quick, json_to=json_to)
