"""`headrace doctor`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.commands.lake_options import StorageOptions, storage_options
from tools.commands.recording_options import (
    Alignment,
    EpisodeGap,
    EpisodeMarker,
    Rate,
    source_options,
)

if TYPE_CHECKING:
    from ingest.source import Finding

_SHOWN_PER_REASON = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    target: Annotated[str, typer.Argument(metavar="SRC|LAKE", help="A recording, or a lake.")],
    fps: Rate = None,
    alignment: Alignment = None,
    episode_marker: EpisodeMarker = None,
    episode_gap: EpisodeGap = None,
    storage_option: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Verify a recording or a lake wholly.

    The exit code is 1 where errors were found. A recording is read as an ingest would read it,
    without writing. Of a lake every checksum is verified, and the ledger against the tables.
    """
    from dataclasses import asdict

    with _progress() as progress:
        if _is_lake(target):
            from ingest.lake_doctor import check_lake
            from lake import open_lake

            opened = open_lake(target, storage_options=storage_options(storage_option))
            found = {target: check_lake(opened, progress=lambda *n: progress(target, *n))}
        else:
            from ingest.doctor import check_recordings

            options = source_options(
                None,
                None,
                fps,
                alignment=alignment,
                marker=episode_marker,
                gap_s=episode_gap,
            )
            found = check_recordings(Path(target), options, progress=progress)
    if as_json:
        rows = {name: [asdict(finding) for finding in items] for name, items in found.items()}
        typer.echo(json.dumps(rows, indent=1))
    else:
        _print(found)
    if any(finding.severity == "error" for items in found.values() for finding in items):
        raise typer.Exit(1)


def _is_lake(target: str) -> bool:
    return "://" in target or any(Path(target).glob("*.lance"))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bars = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:

        def update(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = shown.add_task(Path(name).name, total=total)
            shown.update(bars[name], completed=done)

        yield update


def _print(found: "Mapping[str, Sequence[Finding]]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    styles = {"error": "red", "warning": "yellow", "info": "dim"}
    for name, items in found.items():
        counts = {kind: sum(f.severity == kind for f in items) for kind in styles}
        summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        console.print(
            Text(f"{name}: {summary or 'nothing wrong found'}", style="bold"), soft_wrap=True
        )
        shown: dict[tuple[str, str], int] = {}
        for finding in sorted(items, key=lambda f: list(styles).index(f.severity)):
            key = (finding.severity, finding.reason)
            shown[key] = shown.get(key, 0) + 1
            if shown[key] <= _SHOWN_PER_REASON:
                episode = f" ({finding.episode})" if finding.episode not in finding.where else ""
                line = Text(f"  {finding}{episode}", style=styles[finding.severity])
                console.print(line, soft_wrap=True)
        for (severity, reason), count in shown.items():
            if count > _SHOWN_PER_REASON:
                console.print(
                    Text(f"  {severity} {reason}: {count - _SHOWN_PER_REASON} more"), soft_wrap=True
                )
