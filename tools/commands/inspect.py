"""`headrace inspect`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.commands.recording_options import (
    Alignment,
    EpisodeGap,
    EpisodeMarker,
    Rate,
    source_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ingest.inspect import Inspection
    from ingest.source import Source


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect")(inspect)


def inspect(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="A recording, or a folder of them.")
    ],
    picture: Annotated[
        Path | None,
        typer.Option(help="Write a PNG with first, middle and last frame of every camera."),
    ] = None,
    fps: Rate = None,
    alignment: Alignment = None,
    episode_marker: EpisodeMarker = None,
    episode_gap: EpisodeGap = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Show what a recording holds, without ingesting it.

    And how its features and cameras would be named in a lake.
    """
    from rich.console import Console

    from ingest.contact_sheet import write_contact_sheet
    from ingest.errors import SourceError
    from ingest.formats import discover
    from ingest.inspect import inspect_source

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    described: list[dict[str, Any]] = []
    options = source_options(
        None, None, fps, alignment=alignment, marker=episode_marker, gap_s=episode_gap
    )
    pending_picture = picture
    for found in discover(source).sources:
        try:
            opened = found.format.open(found.path, options)
        except SourceError as error:
            described.append(
                {"source": str(found.path), "error": error.reason, "detail": str(error)}
            )
            if not as_json:
                console.print(f"{error.reason}: {error}", style="red", markup=False, soft_wrap=True)
            continue
        try:
            inspection = inspect_source(opened)
            described.append(_as_json(opened, inspection))
            if not as_json:
                _print(console, opened, inspection)
            if pending_picture is not None and inspection.sample is not None:
                episode = inspection.sample.episode
                if episode.cameras:
                    rows = write_contact_sheet(episode, pending_picture)
                    Console(stderr=True, highlight=False).print(
                        f"wrote {pending_picture}: {episode.episode_id}, top to bottom:"
                        f" {', '.join(rows)}; left to right: first, middle, last frame",
                        soft_wrap=True,
                        markup=False,
                    )
                    pending_picture = None
        finally:
            opened.close()
    if as_json:
        typer.echo(json.dumps(described, indent=1))
    if pending_picture is not None:
        raise SourceError(f"{source}: no camera to take a picture of", reason="no-camera")


def _as_json(source: "Source", inspection: "Inspection") -> dict[str, Any]:
    from dataclasses import asdict

    sample = inspection.sample
    return {
        "source": str(source.root),
        "format": source.format,
        "dataset": source.dataset,
        "episodes": inspection.episodes,
        "steps": inspection.steps,
        "spec": json.loads(source.spec.to_json()),
        "sample": None if sample is None else sample.episode.episode_id,
        "findings": [asdict(finding) for finding in inspection.findings],
    }


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f", ... {names[-1]}" if len(names) > 3 else "")


def _print(console: "Console", source: "Source", inspection: "Inspection") -> None:
    from rich.table import Table
    from rich.text import Text

    steps = "unknown" if inspection.steps is None else f"{inspection.steps:,}"
    console.print(
        Text(f"{source.root}: {source.format}, {inspection.episodes} episodes, {steps} steps"),
        style="bold",
        soft_wrap=True,
    )
    console.print(Text("\n".join(f"  {line}" for line in inspection.tree)), style="dim")
    table = Table(title="proposed mapping", title_justify="left")
    for name in ("in the recording", "in the lake", "type", "shape", "role", "names"):
        table.add_column(name, overflow="fold")
    for feature in source.spec.features:
        table.add_row(
            Text(feature.source_name),
            feature.name,
            feature.dtype,
            str(list(feature.shape)),
            feature.role,
            Text(_short(feature.names or ())),
        )
    for camera in source.spec.cameras:
        size = f"{camera.width}x{camera.height}" if camera.width else "unknown size"
        table.add_row(
            Text(camera.source_name),
            camera.name,
            "depth camera" if camera.is_depth else "camera",
            size,
        )
    console.print(table)
    for part in source.spec.slices:
        console.print(Text(f"  {part.feature}[{part.start}:{part.stop}] = {part.name}"))
    sample = inspection.sample
    if sample is not None:
        episode = sample.episode
        cameras = ", ".join(
            f"{name} {video.index.codec} {video.index.width}x{video.index.height}"
            f" {video.index.num_frames} frames"
            for name, video in episode.cameras.items()
        )
        console.print(
            Text(
                f"first readable episode: {episode.episode_id}, {episode.num_steps} steps;"
                f" cameras: {cameras or 'none'}; instruction: {episode.instruction!r}"
            ),
            soft_wrap=True,
        )
    for finding in inspection.findings:
        console.print(Text(f"  {finding}"), soft_wrap=True)
