"""`headrace demo`."""

from pathlib import Path
from typing import Annotated

import typer

# Beside a checkout of the repository, where the tests look for real recordings too.
_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "recordings"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for all that the demo writes.")] = Path(
        "demo_out"
    ),
    recordings: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="HEADRACE_RECORDINGS",
            help="Recordings of your own to ingest too; repeat.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the work: shows the way, learns nothing.")
    ] = False,
) -> None:
    """Go the whole way in about three minutes on two cores.

    Simulated demonstrations are recorded, ingested, queried, packed, streamed, trained on, and the
    trained policy is assessed on starts it has never seen. Every step is a command you can type.
    """
    from tools.demo.run import run_demo
    from tools.demo.script import DemoSize

    beside = [_BESIDE] if _BESIDE.is_dir() else []
    run_demo(
        out,
        size=DemoSize(episodes=12, epochs=2, rollouts=6) if quick else DemoSize(),
        seed=seed,
        recordings=recordings if recordings is not None else beside,
    )
