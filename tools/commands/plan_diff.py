"""`headrace plan diff`."""

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from packing.plan_diff import PlanDiff

_LISTED = 10


def diff(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    a: Annotated[str, typer.Argument(metavar="A", help="A plan, by name or hash.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The plan to compare it with.")],
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Show what differs between two plans, and from which step on.

    The exit code is 0 where they are the same plan, 1 where they are not.

    Example: headrace plan diff robots.lake mix mix-2
    """
    from rich.console import Console

    from lake import open_lake
    from packing.plan_diff import diff_plans
    from packing.plan_store import load_plan

    opened = open_lake(lake, storage_options=storage_options(store))
    found = diff_plans(load_plan(opened, a), load_plan(opened, b))
    if as_json:
        typer.echo(json.dumps(_document(found), ensure_ascii=False))
    elif found.same:
        typer.echo(f"{a} and {b} are the same plan, {found.hashes[0]}")
    else:
        _print(Console(highlight=False, markup=False), found, (a, b))
    if not found.same:
        raise typer.Exit(1)


def _document(found: "PlanDiff") -> dict[str, Any]:
    document = {"same": found.same, **asdict(found)}
    for each in document["stats"]:
        # Of an element that is constant in one plan: infinite, for which JSON has no word.
        for name in ("mean_shift", "std_ratio"):
            if each[name] is not None and not math.isfinite(each[name]):
                each[name] = "inf"
    return document


def _print(console: "Console", found: "PlanDiff", names: tuple[str, str]) -> None:
    a, b = names if names[0] != names[1] else ("A", "B")
    choices = _grid("what was chosen", "", a, b)
    choices.add_row("plan", *(text[:12] for text in found.hashes))
    for field in found.header:
        choices.add_row(field.name, _text(field.a), _text(field.b))
    console.print(choices)
    for what, ids in (
        (f"only in {a}", found.only_a),
        (f"only in {b}", found.only_b),
        ("of other content", found.changed),
    ):
        if ids:
            more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
            listed = ", ".join(ids[:_LISTED])
            console.print(f"{len(ids)} episodes {what}: {listed}{more}", soft_wrap=True)
    if any(found.texts):
        console.print(f"{found.texts[0]} texts only in {a}, {found.texts[1]} only in {b}")
    data = _grid("data", "dataset", "episodes", "spans", "planned", "tokens")
    for row in found.datasets:
        pairs = (row.episodes, row.spans, row.planned, row.tokens)
        data.add_row(row.dataset, *(_change(*pair) for pair in pairs))
    console.print(data)
    if found.stats:
        stats = _grid(
            "normalisation", "feature", "spec", "steps", "mean moves (std)", "std changes"
        )
        for each in found.stats:
            stats.add_row(
                each.feature,
                each.spec_id[:8],
                _change(*each.counts),
                "" if each.mean_shift is None else f"{each.mean_shift:.4g}",
                "" if each.std_ratio is None else f"x {each.std_ratio:.4g}",
            )
        console.print(stats)
    quality = _grid("how good (newest segments)", "", a, b)
    for figure in found.quality:
        quality.add_row(
            ("* " if figure.differs else "  ") + figure.name, _text(figure.a), _text(figure.b)
        )
    console.print(quality)
    console.print(_first(found), soft_wrap=True)


def _first(found: "PlanDiff") -> str:
    if found.first_step_spans is not None:
        return f"other spans are consumed from step {found.first_step_spans} on"
    if found.first_step_slots is not None:
        return (
            "every step consumes the same spans; from step"
            f" {found.first_step_slots} on in other slots or another order"
        )
    return "every slot of every step holds the same spans in the same order"


def _grid(title: str, *columns: str) -> "Table":
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        grid.add_column(name, justify="right" if number else "left", overflow="fold")
    return grid


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _change(a: int | None, b: int | None) -> str:
    if a == b:
        return _text(a)
    return f"{'none' if a is None else a} -> {'none' if b is None else b}"
