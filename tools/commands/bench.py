"""`headrace bench NAME`."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from lake.errors import HeadraceError

_BENCHES = ("ingest", "loader", "training", "catalog", "packing")


class UnknownBenchError(HeadraceError):
    """There is no bench of that name."""


class NoPictureError(HeadraceError):
    """The bench draws nothing."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(_BENCHES)}.")],
    quick: Annotated[bool, typer.Option("--quick", help="End within 50 s on 2 cores.")] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write JSON here; - for stdout.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw it (packing): png, svg, pdf.")
    ] = None,
) -> None:
    """Measure a part of Headrace against its limit.

    All contenders read the same data in the same order.
    """
    if name not in _BENCHES:
        raise UnknownBenchError(f"no bench called {name!r}; there are: {', '.join(_BENCHES)}")
    from tools.bench.framework import report

    module = importlib.import_module(f"tools.bench.{name}")
    draw = getattr(module, "picture", None)
    if picture and not draw:
        raise NoPictureError(f"the {name} bench draws no picture: leave --picture out")
    result = module.run(quick)
    report(result, quick=quick, json_to=json_to)
    if picture and draw:
        draw(result, picture)
