"""`headrace load`: stream a plan as training would, and say how fast it comes."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tools.commands.lake_options import StorageOptions, storage_options
from tools.commands.load_report import load_table

if TYPE_CHECKING:
    from loader import PackLoader
    from loader.observe.live_view import LiveView


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
    cache_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Cache of this node, on a local disk.")
    ] = None,
    cache_gb: Annotated[
        float | None,
        typer.Option(
            metavar="GB", min=0.001, help="Room for --cache-dir, in 2^30 bytes. [default: 100]"
        ),
    ] = None,
    max_bad_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Go on past spans that are damaged in the lake, up to this share of the rank's.",
        ),
    ] = 1e-4,
    step_ms: Annotated[
        float,
        typer.Option(
            min=0, metavar="MS", help="Wait this long after each training step, as a trainer would."
        ),
    ] = 0.0,
    live: Annotated[
        bool, typer.Option("--live", help="Show what the loader does while it runs.")
    ] = False,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Stream a plan without training.

    A dry run of what a rank will be fed, and at which rate. With --step-ms, `data wait` is the
    share of the time that a trainer with such steps would wait for data.
    """
    from lake import open_lake
    from loader import LoaderError, PackLoader
    from loader.observe.live_view import LiveView
    from loader.storage.settings import StorageSettings

    if cache_gb is not None and cache_dir is None:
        raise LoaderError("--cache-gb is the room for --cache-dir: say where it is")
    storage = StorageSettings(cache_dir=cache_dir)
    if cache_gb is not None:
        storage = StorageSettings(cache_dir=cache_dir, cache_bytes=int(cache_gb * (1 << 30)))
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
        max_bad_share=max_bad_share,
        storage=storage,
    ) as loader:
        if first_step > loader.num_steps:
            raise LoaderError(
                f"--first-step {first_step}: plan {plan} has {loader.num_steps} steps"
            )
        loader.load_state_dict({**loader.state_dict(), "next_step": first_step})
        last = loader.num_steps if steps is None else min(loader.num_steps, first_step + steps)
        view = LiveView(lambda: loader.metrics)
        with _shown(view, last - first_step, live=live, hidden=as_json) as progress:
            figures = _stream(loader, view, progress, first_step, last, step_ms / 1000)
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
        "bad_spans": [span.to_dict() for span in loader.bad_spans],
        "metrics": loader.metrics.to_dict(),
    }
    if as_json:
        typer.echo(json.dumps(report))
    else:
        Console(highlight=False).print(load_table(report))


@contextmanager
def _shown(view: "LiveView", steps: int, *, live: bool, hidden: bool) -> Iterator[Progress]:
    """A bar on a terminal, the live view above it where asked for; on stderr."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} training steps"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not live and (hidden or not console.is_terminal),
    )
    progress.add_task("streaming", total=steps, rate="")
    if live:
        with Live(Group(view, progress), console=console, refresh_per_second=4):
            yield progress
        if not console.is_terminal:  # where `Live` leaves its last line open
            console.line()
    else:
        with progress:
            yield progress


def _stream(
    loader: "PackLoader",
    view: "LiveView",
    progress: Progress,
    first: int,
    last: int,
    step_s: float,
) -> dict[str, Any]:
    task = progress.task_ids[0]
    begin = time.perf_counter()
    first_batch_s = None
    tokens = room = size = 0
    done = first
    for batch in loader if first < last else ():
        seconds = time.perf_counter() - begin
        first_batch_s = seconds if first_batch_s is None else first_batch_s
        tokens += batch.num_tokens + len(batch.actions)
        room += len(batch.input_ids)
        size += batch.nbytes
        steps_per_s, mb_per_s = loader.metrics.steps / seconds, size / seconds / 1e6
        rate = f"{steps_per_s:,.0f} observed steps/s, {mb_per_s:,.0f} MB/s"
        progress.update(task, completed=loader.next_step - first, rate=rate)
        if loader.next_step > done:
            done = loader.next_step
            time.sleep(step_s)
            view.step_done()
        if done >= last:
            break
    seconds = time.perf_counter() - begin
    return {
        "seconds": round(seconds, 6),
        "step_ms": 1000 * step_s,
        "first_batch_s": first_batch_s and round(first_batch_s, 6),
        "batch_bytes": size,
        "padding": round(1 - tokens / room, 6) if room else 0.0,
    }
