"""`headrace plan list|show|verify`, and the other commands about saved plans."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tools.commands.lake_options import StorageOptions, storage_options
from tools.commands.plan_check import check
from tools.commands.plan_diff import diff
from tools.commands.plan_extend import extend
from tools.commands.plan_layouts import layouts
from tools.commands.plan_materialize import materialize, materialized_sets, sets_text
from tools.commands.plan_simulate import simulate

_LAKE = Annotated[str, typer.Argument(help="Path or URI of the lake.")]
_NAME = Annotated[str, typer.Argument(help="Name of the plan, or the first 8 digits of its hash.")]
_JSON = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    plans = typer.Typer(
        help="List, show, verify, compare and simulate saved plans.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    plans.command("list")(list_all)
    plans.command("show")(show)
    plans.command("layouts")(layouts)
    plans.command("verify")(verify)
    plans.command("extend")(extend)
    plans.command("diff")(diff)
    plans.command("simulate")(simulate)
    plans.command("check")(check)
    plans.command("materialize")(materialize)
    app.add_typer(plans, name="plan")


def list_all(lake: _LAKE, store: StorageOptions = None, as_json: _JSON = False) -> None:
    """List the plans of a lake, oldest first."""
    from rich.console import Console
    from rich.table import Table

    from lake import open_lake
    from packing.plan_store import list_plans

    opened = open_lake(lake, storage_options=storage_options(store))
    entries = list_plans(opened)
    sets = [materialized_sets(opened, entry.plan_hash) for entry in entries]
    if as_json:
        documents = zip(entries, sets, strict=True)
        typer.echo(json.dumps([{**asdict(e), "materialized": found} for e, found in documents]))
        return
    if not entries:
        typer.echo(f"no plans; `headrace pack {lake}` makes one")
        return
    grid = Table()
    for name in ("name", "hash", "saved (UTC)"):
        grid.add_column(name, no_wrap=name != "name", overflow="fold")
    grid.add_column("packs", overflow="fold")
    for entry, found in zip(entries, sets, strict=True):
        saved = datetime.fromtimestamp(entry.time_ns / 1e9, UTC)
        grid.add_row(
            entry.name, entry.plan_hash[:12], f"{saved:%Y-%m-%d %H:%M:%S}", sets_text(found)
        )
    Console(highlight=False).print(grid)


def show(
    lake: _LAKE,
    name: _NAME,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the plan into this file (png, svg, pdf).")
    ] = None,
    store: StorageOptions = None,
    as_json: _JSON = False,
) -> None:
    """Show what a plan is, how good it is, and what it left out."""
    from lake import open_lake
    from packing.plan_picture import draw_plan
    from packing.plan_store import find_plan, load_plan, load_plan_header
    from tools.commands.plan_report import print_plan, print_plan_json

    opened = open_lake(lake, storage_options=storage_options(store))
    entry, header = find_plan(opened, name), load_plan_header(opened, name)
    if picture is not None:
        draw_plan(load_plan(opened, name), picture)
    sets = materialized_sets(opened, entry.plan_hash)
    if as_json:
        print_plan_json(entry, header, materialized=sets)
    else:
        print_plan(entry, header)
        typer.echo(f"materialised packs: {sets_text(sets) or 'none'}")


def verify(lake: _LAKE, name: _NAME, store: StorageOptions = None, as_json: _JSON = False) -> None:
    """Derive a plan's promises again from its tables.

    They are: the hash, each span exactly once, the budget, the certificate.
    """
    from lake import open_lake
    from packing.plan_store import load_plan
    from packing.verify import verify_plan

    plan = load_plan(open_lake(lake, storage_options=storage_options(store)), name)
    checked = verify_plan(plan)
    if as_json:
        typer.echo(json.dumps({"plan_hash": plan.plan_hash, "checked": checked}))
    else:
        typer.echo("\n".join(f"ok: {line}" for line in checked))
