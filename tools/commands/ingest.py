"""`headrace ingest`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from tools.commands.lake_options import StorageOptions, storage_options
from tools.commands.recording_options import (
    Alignment,
    Dataset,
    Embodiment,
    EpisodeGap,
    EpisodeMarker,
    Rate,
    source_options,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ingest")(ingest)


def ingest(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SRC...", help="Recordings, or folders of them.", show_default=False
        ),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Argument(
            metavar="LAKE", help="Path or URI of the lake; made if not there.", show_default=False
        ),
    ] = None,
    dataset: Dataset = None,
    embodiment: Embodiment = None,
    fps: Rate = None,
    alignment: Alignment = None,
    episode_marker: EpisodeMarker = None,
    episode_gap: EpisodeGap = None,
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
    formats: Annotated[
        bool,
        typer.Option("--formats", help="List the known formats in place of ingesting anything."),
    ] = False,
    json_only: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Bring recordings into a lake.

    Give the same command again to finish one that was stopped: episodes that are in the lake
    already are not read again. What cannot be read is put into the
    table `quarantine` with its reason; nothing is left out without a record.
    """
    if formats:
        from tools.commands.ingest_formats import print_formats

        print_formats(json_only=json_only)
        return
    if not sources or lake is None:
        raise typer.BadParameter("give SRC... and LAKE: the recordings, and the lake they go into")
    from rich.console import Console

    from ingest.formats import discover
    from ingest.pipeline import ingest_sources
    from ingest.plugins import plugins
    from lake import create_lake
    from tools.commands.ingest_report import as_json, print_report, progress_bar

    for source in sources:
        discover(source)  # a mistyped path must not leave an empty lake behind
    opened = create_lake(lake, storage_options=storage_options(storage_option))
    with progress_bar(Console(stderr=True, highlight=False)) as progress:
        report = ingest_sources(
            sources,
            opened,
            on_error=on_error,
            options=source_options(
                dataset, embodiment, fps, images, alignment, episode_marker, episode_gap
            ),
            commit_episodes=commit_episodes,
            progress=progress,
        )
    for fault in plugins().faults:
        typer.echo(f"headrace: {fault}", err=True)
    if json_only:
        typer.echo(json.dumps(as_json(report), indent=1))
    else:
        print_report(report, lake)
