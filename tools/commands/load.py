"""`headrace load`: stream a plan as training would, and say how fast it comes."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from loader import PackLoader


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("load")(load)


def load(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    plan: Annotated[str, typer.Argument(help="Name or hash of a plan (`headrace plan list`).")],
    rank: Annotated[int, typer.Option(min=0, help="Rank to stream for.")] = 0,
    world_size: Annotated[int, typer.Option(min=1, help="Number of ranks.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps to stream. [default: to the end]")
    ] = None,
    first_step: Annotated[int, typer.Option(min=0, help="Step to begin at.")] = 0,
    process: Annotated[
        Literal["child", "inline"], typer.Option(help="Decode in a process of its own, or here.")
    ] = "child",
    workers: Annotated[int, typer.Option(min=1, help="Decode processes.")] = 1,
    materialized: Annotated[
        bool,
        typer.Option(
            "--materialized", help="Read packs that `headrace plan materialize` has written."
        ),
    ] = False,
    packs: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="NAME", help="Read the materialised packs of this name instead."
        ),
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Stream a plan without training.

    A dry run of what a rank will be fed, and at which rate.
    """
    from lake import open_lake
    from loader import LoaderError, PackLoader

    opened = open_lake(lake, storage_options=storage_options(store))
    with PackLoader(
        opened,
        plan,
        rank,
        world_size,
        process=process,
        num_workers=workers,
        framework="numpy",
        materialized=packs or materialized,
    ) as loader:
        if first_step > loader.num_steps:
            raise LoaderError(
                f"--first-step {first_step}: plan {plan} has {loader.num_steps} steps"
            )
        loader.load_state_dict({**loader.state_dict(), "next_step": first_step})
        last = loader.num_steps if steps is None else min(loader.num_steps, first_step + steps)
        with _progress(hidden=as_json) as progress:
            figures = _stream(loader, progress, first_step, last)
    report = {
        "lake": lake,
        "plan": plan,
        "plan_hash": loader.plan.plan_hash,
        "source": loader.source,
        "rank": rank,
        "world_size": world_size,
        "first_step": first_step,
        "next_step": loader.next_step,
        **figures,
        "metrics": loader.metrics.to_dict(),
    }
    if as_json:
        typer.echo(json.dumps(report))
    else:
        Console(highlight=False).print(_table(report))


def _progress(*, hidden: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} training steps"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        disable=hidden or not console.is_terminal,
    )


def _stream(loader: "PackLoader", progress: Progress, first: int, last: int) -> dict[str, Any]:
    task = progress.add_task("streaming", total=last - first, rate="")
    begin = time.perf_counter()
    first_batch_s = None
    tokens = room = size = 0
    for batch in loader if first < last else ():
        seconds = time.perf_counter() - begin
        first_batch_s = seconds if first_batch_s is None else first_batch_s
        tokens += batch.num_tokens + len(batch.actions)
        room += len(batch.input_ids)
        size += batch.nbytes
        steps_per_s, mb_per_s = loader.metrics.steps / seconds, size / seconds / 1e6
        rate = f"{steps_per_s:,.0f} observed steps/s, {mb_per_s:,.0f} MB/s"
        progress.update(task, completed=loader.next_step - first, rate=rate)
        if loader.next_step >= last:
            break
    seconds = time.perf_counter() - begin
    return {
        "seconds": round(seconds, 6),
        "first_batch_s": first_batch_s and round(first_batch_s, 6),
        "batch_bytes": size,
        "padding": round(1 - tokens / room, 6) if room else 0.0,
    }


def _table(report: dict[str, Any]) -> Table:
    table = Table(
        title=f"plan {report['plan']}, rank {report['rank']} of {report['world_size']}",
        title_justify="left",
        show_header=False,
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(report).items():
        table.add_row(name, text)
    return table


def _lines(report: dict[str, Any]) -> dict[str, str]:
    metrics: dict[str, Any] = report["metrics"]
    counts: dict[str, int] = {"requests": 0, "bytes_read": 0, **metrics["counts"]}
    seconds = max(report["seconds"], 1e-9)
    span = f"training steps {report['first_step']} to {report['next_step']}"
    held = f"{metrics['packs']} packs, {metrics['spans']} spans, {metrics['steps']} observed steps"
    rates = [
        f"{metrics[name] / seconds:,.{digits}f} {what}/s"
        for name, digits, what in (
            ("packs", 1, "packs"),
            ("spans", 0, "spans"),
            ("steps", 0, "observed steps"),
        )
    ]
    rates.append(f"{report['batch_bytes'] / seconds / 1e6:,.0f} MB/s of batches")
    first = f"first batch after {report['first_batch_s'] or 0:.2f} s"
    stages = [f"{name} {value:.2f} s" for name, value in metrics["stage_s"].items()]
    pictures = (
        f"{counts.get('wanted_frames', 0)} delivered, {counts.get('reused_frames', 0)} of them"
        f" kept from an earlier pack; {counts.get('decoded_frames', 0)} decoded"
    )
    what = "video" if report["source"] == "episodes" else report["source"] + " packs"
    read = f"{counts['bytes_read'] / 1e6:,.1f} MB of {what}"
    return {
        "streamed": f"{span}: {held}",
        "rate": ", ".join(rates),
        "padding": f"{report['padding']:.2%} of the token budget",
        "pictures": pictures,
        "storage": f"{read}; {counts['requests']} requests in all",
        "time": f"{seconds:.2f} s, {first}; decode processes: {metrics['worker_cpu_s']:.2f} CPU s",
        "stages": ", ".join(stages),
    }
