"""`headrace simulate`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    out: Annotated[Path, typer.Option("--out", help="Folder for the HDF5 files.")],
    episodes: Annotated[int, typer.Option(min=1, help="Demonstrations to record.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    cameras: Annotated[
        bool, typer.Option("--cameras/--no-cameras", help="Record pictures (needs OpenGL).")
    ] = True,
    picture: Annotated[
        Path | None, typer.Option(help="Save a contact sheet of the first episodes here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Record demonstrations in a physics simulation.

    A scripted expert acts; every episode is an HDF5 file in the ALOHA layout.
    """
    from rich.console import Console
    from rich.progress import Progress

    from training.simulation.mjcf import CAMERAS
    from training.simulation.picture import save_rollout_picture
    from training.simulation.recorder import record
    from training.simulation.rollout import RolloutResult

    samples: list[RolloutResult] = []
    stderr = Console(stderr=True)
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        bar = progress.add_task("recording", total=episodes)

        def seen(result: RolloutResult) -> None:
            if picture is not None and len(samples) < 4:
                samples.append(result)
            progress.advance(bar)

        report = record(out, episodes, seed, cameras=CAMERAS if cameras else (), progress=seen)
    if picture is not None:
        save_rollout_picture(picture, samples, title="scripted expert")
    steps = sum(report.lengths)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "out": str(out),
                    "episodes": len(report.files),
                    "steps": steps,
                    "shortest": min(report.lengths),
                    "longest": max(report.lengths),
                    "successes": report.successes,
                    "cameras": list(report.cameras),
                    "picture": None if picture is None else str(picture),
                }
            )
        )
        return
    console = Console()
    console.print(
        f"{len(report.files)} episodes of {min(report.lengths)} to {max(report.lengths)} steps"
        f" ({steps} in all), {report.successes} successful, cameras:"
        f" {', '.join(report.cameras) or 'none'}"
    )
    console.print(f"next: headrace ingest {out} LAKE", markup=False, highlight=False)
