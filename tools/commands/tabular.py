"""Print an Arrow table: for people, as JSON, or as CSV."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_WIDE: Final = 10_000
_MAX_ITEMS: Final = 8
_MAX_CHARACTERS: Final = 400  # of one line of text, such as a JSON document


def print_rows(table: pa.Table, *, max_rows: int = 0, title: str | None = None) -> None:
    """Print for people: a row per line, or a value per line where rows are wider than the terminal.

    Args:
        table: what to print.
        max_rows: rows to show at most, 0 for all; what is left out is counted below.
        title: heading.
    """
    shown = table.slice(0, max_rows) if max_rows else table
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDE)  # never fold what another program reads
    grid = Table(title=title and Text(title), title_justify="left")
    for name, column in zip(table.column_names, table.columns, strict=True):
        grid.add_column(Text(name), justify="right" if _is_number(column.type) else "left")
    rows = list(_rows(shown))
    for row in rows:
        grid.add_row(*(_cell(value) for value in row))
    if (
        rows
        and Measurement.get(console, console.options.update(width=_WIDE), grid).maximum
        > console.width
    ):
        grid = _upright(table.column_names, rows, title)
    console.print(grid)
    left = table.num_rows - shown.num_rows
    if left:
        console.print(f"{left} more of {table.num_rows} rows; --rows 0 shows all", style="dim")


def print_json(table: pa.Table) -> None:
    """Print a list with an object per row; times as ISO 8601, bytes as hex, NaN as null."""
    names = _distinct(table.column_names)
    out = sys.stdout
    out.write("[")
    for number, row in enumerate(_rows(table)):
        cells = dict(zip(names, map(plain, row), strict=True))
        out.write((",\n " if number else "") + json.dumps(cells, ensure_ascii=False))
    out.write("]\n")


def print_csv(table: pa.Table) -> None:
    """Print as CSV with a header; NULL is an empty cell, a list is JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _rows(table):
        cells = [plain(value) for value in row]
        writer.writerow(
            json.dumps(cell, ensure_ascii=False) if isinstance(cell, (list, dict)) else cell
            for cell in cells
        )


def plain(value: object) -> object:
    """A value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples, a batch at a time; a dict per row would lose columns of the same name."""
    for batch in table.to_batches(max_chunksize=4096):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _distinct(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}_{count}" if count else name)
    return result


def _upright(names: list[str], rows: list[tuple[Any, ...]], title: str | None) -> Table:
    grid = Table(title=title and Text(title), title_justify="left", show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        for name, value in zip(names, row, strict=True):
            grid.add_row(Text(name), _cell(value))
        grid.add_section()
    return grid


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    return Text(_text(value))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        items = ", ".join(_text(item) for item in value[:_MAX_ITEMS])
        return f"[{items}, ... {len(value)}]" if len(value) > _MAX_ITEMS else f"[{items}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    text = "NULL" if value is None else str(plain(value))
    if len(text) > _MAX_CHARACTERS and "\n" not in text:
        return f"{text[:_MAX_CHARACTERS]}... {len(text)} characters, --json has all"
    return text


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
