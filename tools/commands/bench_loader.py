"""`headrace bench loader`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.commands.bench_cost import JsonTo, Quick
from tools.commands.lake_options import OptionError, StorageOptions, storage_options

if TYPE_CHECKING:
    from tools.bench.framework import BenchResult


def loader(
    lake: Annotated[
        str | None, typer.Argument(help="With --headspace: a lake of your own.")
    ] = None,
    plan: Annotated[
        str | None, typer.Argument(help="Name or hash of a plan that it holds.")
    ] = None,
    quick: Quick = False,
    headspace: Annotated[
        bool,
        typer.Option(
            "--headspace",
            help="How far the loader is from each limit: memory, cached, cold, an object store.",
        ),
    ] = False,
    step_ms: Annotated[
        float, typer.Option(min=1.0, help="With --headspace: length of a training step.")
    ] = 50.0,
    workers: Annotated[int, typer.Option(min=1, help="With --headspace: decode processes.")] = 1,
    peers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PYTHON",
            help="Also measure other loaders: those in the environment of this interpreter; may be"
            " repeated. Those installed beside headrace are measured without.",
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw it: png, svg or pdf.")
    ] = None,
    store: StorageOptions = None,
    json_to: JsonTo = None,
) -> None:
    """Streaming against plain decoding and other loaders, on the same video in the same order.

    Example: headrace bench loader --headspace robots.lake mix --step-ms 120
    """
    from tools.bench.framework import report

    if headspace:
        if peers or picture:
            raise OptionError("--headspace measures one lake: leave out --peers and --picture")
        result = _headspace(lake, plan, storage_options(store), step_ms, workers, quick=quick)
        report(result, quick=quick, json_to=json_to)
        return
    if lake is not None or store:
        raise OptionError("a lake of your own is measured with --headspace LAKE PLAN")
    from tools.bench import loader as bench

    result = bench.run(quick, tuple(peers or ()))
    report(result, quick=quick, json_to=json_to)
    if picture:
        bench.picture(result, picture)


def _headspace(
    lake: str | None,
    plan: str | None,
    options: dict[str, str],
    step_ms: float,
    workers: int,
    *,
    quick: bool,
) -> "BenchResult":
    from lake import open_lake
    from packing.plan_store import load_plan
    from tools.bench.loader_headspace import FULL, QUICK, bench_headspace, measure_headspace

    length = (QUICK if quick else FULL).with_training(step_s=step_ms / 1e3, num_workers=workers)
    if lake is None:
        return bench_headspace(length)
    if plan is None:
        raise OptionError("--headspace LAKE needs a PLAN too (`headrace plan list LAKE`)")
    opened = open_lake(lake, storage_options=options)
    return measure_headspace(opened, load_plan(opened, plan), length)
