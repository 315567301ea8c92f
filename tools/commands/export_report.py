"""How `headrace export` shows its progress and what it did."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ingest.export.lerobot.export import ExportProgress, ExportReport

_STYLES: Final = {"error": "red", "warning": "yellow", "info": "dim"}
_WIDTH_OF_FILES: Final = 160


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[["ExportProgress"], None]]:
    """A bar over the episodes, first as they are checked, then as they are written."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        bar = shown.add_task("", total=None, rate="")

        def update(progress: "ExportProgress") -> None:
            elapsed = shown.tasks[0].elapsed
            rate = f"{progress.steps / elapsed:,.0f} steps/s" if progress.steps and elapsed else ""
            shown.update(
                bar,
                description=progress.phase,
                total=progress.total,
                completed=progress.done,
                rate=rate,
            )

        yield update


def as_json(report: "ExportReport") -> dict[str, Any]:
    """The report as JSON can hold it."""
    return {
        "datasets": [{"path": str(path), **asdict(of)} for path, of in report.datasets.items()],
        "left_out": report.left_out,
        "findings": [{"count": group.count, **asdict(group.first)} for group in report.groups()],
    }


def print_report(report: "ExportReport", to: str) -> None:
    """A table of what was written, then what was left out and what the format has no place for."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_OF_FILES)
    table = Table(title=Text(f"exported as {to}"), title_justify="left")
    table.add_column("dataset", overflow="fold")
    for name in ("episodes", "steps", "frames", "files", "MiB of video"):
        table.add_column(name, justify="right", no_wrap=True)
    for path, of in report.datasets.items():
        counts = (f"{n:,}" for n in (of.episodes, of.steps, of.frames, of.files))
        table.add_row(str(path), *counts, f"{of.video_bytes / 2**20:,.1f}")
    console.print(table)
    for group in report.groups():
        first = group.first
        times = f" ({group.count} episodes; first shown)" if group.count > 1 else ""
        console.print(Text(f"{first}{times}", style=_STYLES[first.severity]), soft_wrap=True)
