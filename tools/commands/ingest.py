"""`headrace ingest`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tools.commands.recording_options import (
    Dataset,
    Embodiment,
    Rate,
    StorageOptions,
    source_options,
    storage_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ingest.report import IngestProgress, IngestReport

_WHY = "SELECT source, episode, stream, reason, detail FROM quarantine"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ingest")(ingest)


def ingest(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SRC...", help="Recordings, or folders of them.")
    ],
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake; made if not there.")],
    dataset: Dataset = None,
    embodiment: Embodiment = None,
    fps: Rate = None,
    images: Annotated[
        Literal["h264", "png"],
        typer.Option(help="How raw pictures are kept: h264 encodes once, png keeps every bit."),
    ] = "h264",
    on_error: Annotated[
        Literal["quarantine", "fail"],
        typer.Option(help="Record what cannot be read and go on, or stop at the first."),
    ] = "quarantine",
    commit_episodes: Annotated[
        int, typer.Option(min=1, help="Episodes per commit; a killed ingest repeats at most these.")
    ] = 1024,
    storage_option: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Bring recordings into a lake; give the same command again to finish one that was stopped.

    Episodes that are in the lake already are not read again. What cannot be read is put into the
    table `quarantine` with its reason; nothing is left out without a record.
    """
    from rich.console import Console

    from ingest.formats import discover
    from ingest.pipeline import ingest_sources
    from lake import create_lake

    console = Console(stderr=True, highlight=False)
    for source in sources:
        discover(source)  # a mistyped path must not leave an empty lake behind
    opened = create_lake(lake, storage_options=storage_options(storage_option))
    with _progress(console) as progress:
        report = ingest_sources(
            sources,
            opened,
            on_error=on_error,
            options=source_options(dataset, embodiment, fps, images),
            commit_episodes=commit_episodes,
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps(_as_json(report), indent=1))
    else:
        _print(report, lake)


@contextmanager
def _progress(console: "Console") -> "Iterator[Callable[[IngestProgress], None]]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    bars: dict[str, Any] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:

        def update(progress: "IngestProgress") -> None:
            counts = progress.source
            if counts.source not in bars:
                bars[counts.source] = shown.add_task(
                    Path(counts.source).name, total=progress.total, rate=""
                )
            bar = bars[counts.source]
            elapsed = shown.tasks[shown.task_ids.index(bar)].elapsed or 0.0
            rate = f"{counts.frames / elapsed:,.0f} frames/s" if elapsed else ""
            shown.update(
                bar,
                completed=progress.done,
                rate=f"{rate}  {counts.video_bytes / 2**20:,.1f} MiB",
            )

        yield update


def _as_json(report: "IngestReport") -> dict[str, Any]:
    from dataclasses import asdict

    sources = []
    for source in report.sources:
        row = asdict(source)
        del row["groups"]
        row["findings"] = [
            {"count": group.count, **asdict(group.first)} for group in source.groups.values()
        ]
        sources.append(row)
    return {
        "sources": sources,
        "adopted": report.adopted,
        "unrecognised": report.unrecognised,
    }


def _print(report: "IngestReport", lake: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    table = Table(title=f"ingested into {lake}", title_justify="left")
    for name in ("source", "format"):
        table.add_column(name, overflow="fold")
    for name in ("written", "present", "quarantined", "steps", "frames", "MiB", "seconds"):
        table.add_column(name, justify="right")
    for source in report.sources:
        table.add_row(
            Text(Path(source.source).name),
            source.format or "unreadable",
            f"{source.written:,}",
            f"{source.present:,}",
            f"{source.quarantined + source.streams_quarantined:,}",
            f"{source.steps:,}",
            f"{source.frames:,}",
            f"{source.video_bytes / 2**20:,.1f}",
            f"{source.seconds:.2f}",
        )
    console.print(table)
    styles = {"error": "red", "warning": "yellow"}  # the others are in each episode's `findings`
    for source in report.sources:
        for group in (g for g in source.groups.values() if g.first.severity in styles):
            times = f" ({group.count} times; first shown)" if group.count > 1 else ""
            line = f"{Path(source.source).name}: {group.first}{times}"
            console.print(Text(line, style=styles[group.first.severity]), soft_wrap=True)
    if report.adopted:
        console.print(f"{report.adopted} episodes of an ingest that was stopped are now committed.")
    if report.unrecognised:
        shown = ", ".join(Path(name).name for name in report.unrecognised[:5])
        more = ", ..." if len(report.unrecognised) > 5 else ""
        console.print(f"{len(report.unrecognised)} files of no known format: {shown}{more}")
    if report.quarantined:
        console.print(
            f'{report.quarantined} in quarantine; see why: headrace sql {lake} "{_WHY}"',
            soft_wrap=True,
            markup=False,
        )
