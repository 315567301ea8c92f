"""How `headrace ingest` shows its progress and what it did."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ingest.report import FindingGroup, IngestProgress, IngestReport, SourceIngest

_WHY: Final = "SELECT source, episode, stream, reason, detail FROM quarantine"
_STYLES: Final = {"error": "red", "warning": "yellow"}
_WIDTH_OF_FILES: Final = 160


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[IngestProgress], None]]:
    """One bar for the recording in work, with the rate over all of them; nothing off a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        bar = shown.add_task("", total=None, rate="")
        counts: dict[int, SourceIngest] = {}

        def update(progress: IngestProgress) -> None:
            counts[progress.number] = progress.source
            frames = sum(source.frames for source in counts.values())
            size = sum(source.video_bytes for source in counts.values())
            elapsed = shown.tasks[0].elapsed
            rate = f"{frames / elapsed:,.0f} frames/s" if elapsed else ""
            name = Path(progress.source.source).name
            shown.update(
                bar,
                description=f"{progress.number}/{progress.sources} {name}",
                total=progress.total,
                completed=progress.done,
                rate=f"{rate}  {size / 2**20:,.1f} MiB",
            )

        yield update


def as_json(report: IngestReport) -> dict[str, Any]:
    """The report as JSON can hold it."""
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
        "raced": report.raced,
        "unrecognised": report.unrecognised,
    }


def print_report(report: IngestReport, lake: str) -> None:
    """A table of counts, then what was found, left out and quarantined."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_OF_FILES)
    rows = _rows(report)
    seconds = sum(row.total("seconds") for row in rows)
    table = Table(title=Text(f"ingested into {lake} in {seconds:.1f} s"), title_justify="left")
    table.add_column("source", overflow="fold")
    for name in ("written", "present", "quarantined", "steps", "frames", "MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text.assemble(row.label, "\n", (row.format or "unreadable", "dim")),
            *(f"{row.total(name):,}" for name in ("written", "present")),
            f"{row.total('quarantined') + row.total('streams_quarantined'):,}",
            *(f"{row.total(name):,}" for name in ("steps", "frames")),
            f"{row.total('video_bytes') / 2**20:,.1f}",
        )
    console.print(table)
    for row in rows:
        for group in row.findings():
            times = f" ({group.count} times; first shown)" if group.count > 1 else ""
            style = _STYLES[group.first.severity]
            console.print(Text(f"{row.label}: {group.first}{times}", style=style), soft_wrap=True)
    if report.adopted:
        console.print(f"{report.adopted} episodes of an ingest that was stopped are now committed.")
    if report.raced:
        console.print(
            f"{report.raced} of the episodes written were committed by another ingest first; the"
            " lake has each once."
        )
    if report.unrecognised:
        shown = ", ".join(Path(name).name for name in report.unrecognised[:5])
        more = ", ..." if len(report.unrecognised) > 5 else ""
        line = f"{len(report.unrecognised)} files of no known format: {shown}{more}"
        console.print(line, soft_wrap=True, markup=False)
    if report.quarantined:
        console.print(
            f'{report.quarantined} in quarantine; see why: headrace sql {lake} "{_WHY}"',
            soft_wrap=True,
            markup=False,
        )


@dataclass(kw_only=True)
class _Row:
    """Sources shown as one line: those of one dataset and format, e.g. a folder of episodes."""

    format: str
    sources: list[SourceIngest] = field(default_factory=list)

    @property
    def label(self) -> str:
        if len(self.sources) == 1:
            return Path(self.sources[0].source).name
        return f"{self.sources[0].dataset} ({len(self.sources)} files)"

    def total(self, name: str) -> float:
        """Sum of a count over the sources; an int where the counts are."""
        counts: list[float] = [getattr(source, name) for source in self.sources]
        return sum(counts)

    def findings(self) -> Iterator[FindingGroup]:
        """Errors and warnings; the rest is in each episode's own `findings`."""
        merged: dict[tuple[str, str, str], FindingGroup] = {}
        for source in self.sources:
            for key, group in source.groups.items():
                if group.first.severity in _STYLES:
                    known = merged.setdefault(key, FindingGroup(first=group.first, count=0))
                    known.count += group.count
        yield from merged.values()


def _rows(report: IngestReport) -> list[_Row]:
    rows: dict[tuple[str, str], _Row] = {}
    for source in report.sources:
        # Without a dataset it could not be opened: a line of its own.
        key = (source.dataset or source.source, source.format)
        rows.setdefault(key, _Row(format=source.format)).sources.append(source)
    return list(rows.values())
