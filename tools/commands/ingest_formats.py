"""How `headrace ingest --formats` lists what can be read."""

import json

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ingest.formats import known_formats
from ingest.plugins import plugins
from ingest.source import Format


def print_formats(*, json_only: bool) -> None:
    """Print each format, what it looks for, and how to install what its reader lacks."""
    formats, faults = known_formats(), plugins().faults
    if json_only:
        rows = [
            {
                "name": known.name,
                "looks_for": known.looks_for,
                "installed": not known.missing,
                "missing": known.missing,
                "extra": known.extra,
            }
            for known in formats
        ]
        typer.echo(json.dumps({"formats": rows, "faults": faults}, indent=1))
        return
    table = Table("format", "reader", "looks for")
    for known in formats:
        table.add_row(known.name, Text(_reader(known)), Text(known.looks_for))
    Console(highlight=False).print(table)
    for fault in faults:
        typer.echo(f"headrace: {fault}", err=True)


def _reader(known: Format) -> str:
    if not known.missing:
        return "installed"
    how = f": pip install 'headrace[{known.extra}]'" if known.extra else ""
    return f"needs {', '.join(known.missing)}{how}"
