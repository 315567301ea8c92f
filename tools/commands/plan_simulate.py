"""`headrace plan simulate`."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packing.job_time import JobTime
    from packing.simulate_plan import JobSimulation


def simulate(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    name: Annotated[
        str, typer.Argument(help="Name of the plan, or the first 8 digits of its hash.")
    ],
    world_size: Annotated[
        int | None, typer.Option(help="Ranks. [default: the plan's slots]")
    ] = None,
    step_ms: Annotated[
        float | None,
        typer.Option(help="Time of a step of mean cost; without it no time is computed."),
    ] = None,
    latency_ms: Annotated[float, typer.Option(help="Of a round trip to the store.")] = 20.0,
    bandwidth_mb_s: Annotated[float, typer.Option(help="Of a rank, from the store.")] = 500.0,
    parallel_requests: Annotated[int, typer.Option(help="Of a rank, at a time.")] = 64,
    decode_ms: Annotated[float, typer.Option(help="CPU time of a frame.")] = 0.25,
    workers: Annotated[int, typer.Option(help="Decode processes of a rank.")] = 1,
    buffer_mb: Annotated[float, typer.Option(help="Memory of a rank's loader.")] = 1074.0,
    fetch_block_kb: Annotated[
        float | None,
        typer.Option(help="Closer reads are one request. [default: 4 on disk, 16 on a store]"),
    ] = None,
    d_model: Annotated[
        int | None,
        typer.Option(min=1, help="Width for the cost. [default: what the plan was balanced by]"),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw cost and reads over the steps into this file.")
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Show what a training job would see of a plan: loads, reads, memory, waiting for data.

    Nothing is read but sizes. Requests and bytes follow from how the loader reads; waiting from a
    queue with the figures given.

    Example: headrace plan simulate robots.lake mix --world-size 64 --step-ms 250
    """
    from lake import open_lake
    from packing.cost import CostModel
    from packing.job_time import JobSpeed
    from packing.plan_store import load_plan
    from packing.simulate_picture import draw_simulation
    from packing.simulate_plan import simulate_plan
    from packing.storage.facts import read_storage_facts

    opened = open_lake(lake, storage_options=storage_options(store))
    plan = load_plan(opened, name)
    block = None if fetch_block_kb is None else round(fetch_block_kb * 1024)
    facts = read_storage_facts(opened, plan.header, plan.episodes, fetch_block_bytes=block)
    speed = JobSpeed(
        step_ms=step_ms,
        latency_ms=latency_ms,
        bandwidth_mb_s=bandwidth_mb_s,
        parallel_requests=parallel_requests,
        decode_ms=decode_ms,
        num_workers=workers,
        buffer_bytes=round(buffer_mb * 1e6),
    )
    cost = None if d_model is None else CostModel.of_width(d_model)
    ranks = plan.header.slots_per_step if world_size is None else world_size
    job = simulate_plan(plan, facts, ranks, speed=speed, cost=cost)
    if picture is not None:
        draw_simulation(job, picture)
    if as_json:
        document = {"plan_hash": plan.plan_hash, "name": name, **_document(job)}
        if job.time is not None:
            document["speed"] = asdict(speed)
        typer.echo(json.dumps(document, ensure_ascii=False))
    else:
        _print(job, name)


def _document(job: "JobSimulation") -> dict[str, Any]:
    arrays = {"max_cost", "mean_cost", "replayed"}
    values = {f.name: getattr(job, f.name) for f in fields(job) if f.name not in arrays}
    return {
        **values,
        "tokens_of_rank": asdict(job.tokens_of_rank),
        "epochs": [asdict(epoch) for epoch in job.epochs],
        "storage": job.storage.to_dict(),
        "time": None if job.time is None else asdict(job.time),
    }


def _print(job: "JobSimulation", name: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from tools.commands.storage_report import storage_table

    console = Console(highlight=False)
    grid = Table(
        title=f"plan {name} on {job.world_size} ranks", title_justify="left", show_header=False
    )
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in _rows(job):
        grid.add_row(*row)
    console.print(grid)
    epochs = Table(title="epochs", title_justify="left")
    for column in ("epoch", "steps", "spans", "tokens", "packs of last step", "idle ranks in it"):
        epochs.add_column(column, justify="right", no_wrap=True)
    for epoch in job.epochs:
        epochs.add_row(*map(str, asdict(epoch).values()))
    console.print(epochs)
    console.print(storage_table([job.storage]))


def _rows(job: "JobSimulation") -> "Iterator[tuple[str, str, str]]":
    tokens, storage = job.tokens_of_rank, job.storage
    yield (
        "steps",
        f"{job.steps:,}",
        (
            f"{job.packs_per_rank} packs of a rank in each; {job.idle_rank_steps} times a rank has"
            " none with a span"
        ),
    )
    yield (
        "tokens",
        f"{tokens.mean:,.0f}",
        (
            f"of a rank and step, at most {tokens.max:,.0f}; fullest over mean rank"
            f" {job.tokens_max_over_mean:.4f}"
        ),
    )
    yield (
        "cost",
        f"{job.cost_max_over_mean:.4f}",
        (
            f"costliest over mean rank; in step {job.worst_step}, the worst of those where all have"
            f" spans, {job.worst_max_over_mean:.4f}"
        ),
    )
    yield (
        "reads",
        f"{storage.requests.mean:,.1f}",
        (
            f"store requests of a rank and step in {storage.calls.mean:.2f} reader calls,"
            f" {storage.read_bytes.mean / 1e6:,.2f} MB, of video {storage.video_bytes / 1e6:,.2f}"
        ),
    )
    yield (
        "decoding",
        f"{storage.decoded_frames:,.1f}",
        (
            f"frames of a rank and step for {storage.pictures:,.1f} pictures, of which"
            f" {storage.pictures - storage.fresh_pictures:,.1f} are in memory"
        ),
    )
    yield (
        "look-ahead",
        f"{storage.look_ahead_packs}",
        (
            f"packs; up to {storage.kept_frames:,} frames are kept for them,"
            f" {storage.kept_bytes / 1e6:,.1f} MB"
        ),
    )
    if storage.rank_steps < job.steps * job.world_size:
        yield (
            "sample",
            f"{storage.rank_steps:,}",
            f"of {job.steps * job.world_size:,} steps of ranks were replayed for reads",
        )
    if job.time is not None:
        yield from _time_rows(job.time)


def _time_rows(time: "JobTime") -> "Iterator[tuple[str, str, str]]":
    yield (
        "step time",
        f"{time.step_ms.mean:,.1f} ms",
        (
            f"95 % within {time.step_ms.p95:,.1f}, at most {time.step_ms.max:,.1f}; a rank's data"
            f" is made in {time.production_ms.mean:,.1f} ms on average"
        ),
    )
    yield (
        "waiting",
        f"{time.wait_share:.2%}",
        (
            f"of the time, for data; the first step waits {time.first_batch_ms:,.0f} ms;"
            f" {time.prefetched_steps} steps are prefetched"
        ),
    )
    yield (
        "load",
        f"{time.busy_cores:.2f}",
        f"cores of a rank decode; it reads {time.read_mb_s:,.1f} MB/s",
    )
    yield "job", _duration(time.total_s), f"of which {_duration(time.compute_s)} compute"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h" if seconds >= 3600 else f"{seconds:,.1f} s"
