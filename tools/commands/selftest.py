"""`headrace selftest`: the loader's guarantees, proved on a lake and plan of one's own."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tools.commands.lake_options import OptionError, StorageOptions, storage_options

if TYPE_CHECKING:
    from lake import Lake
    from loader.proof.planned import PlannedSteps
    from loader.proof.report import ProofResult
    from packing.stored_plan import AnyPlan
    from tools.faults.fault import Fault

_WORLD_SIZES: Final = (1, 2, 3)
_EPISODES: Final = 24
_BUDGET_TOKENS: Final = 2048
_SHOWN: Final = 5
_UNPROVED_EXIT: Final = 3

Tell = Callable[[str, int, int], None]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("selftest")(selftest)


def selftest(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    plan: Annotated[
        str | None,
        typer.Option(help="Name or hash of a saved plan. [default: a small one, in memory]"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the plan to prove.")] = 12,
    first_step: Annotated[int, typer.Option(min=0, help="Step to begin at.")] = 0,
    world_sizes: Annotated[
        str | None,
        typer.Option(help="Numbers of ranks. [default: 1,2,3, as far as the plan has slots]"),
    ] = None,
    kills: Annotated[int, typer.Option(min=0, help="How often the job is killed.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the points where it is killed, and faults.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=1, help="Begin nothing new after this time.")
    ] = 120.0,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prove on your own lake what the loader promises.

    Exactly once: ranks are killed at random points, and what they consumed is compared with the
    plan. Elastic: every way to stream gives the same bytes. Faults: reads that fail, stall or bring
    wrong bytes change nothing that is delivered, or end in a named error.

    Nothing is written to the lake. The exit code is 1 where a proof failed, and 3 where none did
    but time was too short to prove all of them.
    """
    from lake import open_lake
    from loader.proof.planned import PlannedSteps

    opened = open_lake(lake, storage_options=storage_options(store))
    asked = None if world_sizes is None else _numbers(world_sizes)
    chosen = _plan(opened, plan, max(asked or _WORLD_SIZES))
    worlds = _fitting(asked, chosen)
    planned = PlannedSteps.of_plan(chosen, first_step, steps)
    with _progress(hidden=as_json) as tell:
        results, left = _prove(opened, chosen, planned, worlds, kills, seed, seconds, tell)
    failed = sum(result.failed for result in results)
    unproved = [result for result in results if not result.failed and result.unproved]
    report = {
        "lake": lake,
        "plan": plan,
        "plan_hash": chosen.plan_hash,
        "whole_plan": planned.whole,
        "world_sizes": worlds,
        "passed": not (failed or unproved or left),
        "failed": failed,
        "unproved": len(unproved),
        "proofs": [result.to_dict() for result in results],
        "not_tried": left,
    }
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(results, left, f"{_named(plan)}, steps {_range(planned)}", planned.stop_step)
    if failed:
        raise typer.Exit(1)
    if unproved or left:
        raise typer.Exit(_UNPROVED_EXIT)


def _plan(lake: "Lake", name: str | None, slots: int) -> "AnyPlan":
    """The saved plan, or one of a few episodes."""
    from lake import visible_episodes
    from packing.make_plan import make_plan
    from packing.stored_plan import open_plan
    from packing.window_spans import WindowSpans

    if name is not None:
        return open_plan(lake, name)
    episodes = visible_episodes(lake)["episode_id"].to_pylist()
    every = max(1, len(episodes) // _EPISODES)
    return make_plan(
        lake,
        episodes[::every][:_EPISODES],
        spans=WindowSpans(horizon=16),
        budget_tokens=_BUDGET_TOKENS,
        slots_per_step=slots,
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"--world-sizes {text!r}: write numbers, such as 1,2,3") from None
    if min(numbers) < 1:
        raise OptionError(f"--world-sizes {text!r}: at least 1 rank")
    return numbers


def _fitting(asked: Sequence[int] | None, plan: "AnyPlan") -> list[int]:
    """World sizes that the plan has slots for."""
    slots = plan.header.slots_per_step
    if asked is not None and max(asked) > slots:
        raise OptionError(f"--world-sizes {max(asked)}: the plan has {slots} slots per step")
    return [size for size in asked or _WORLD_SIZES if size <= slots]


def _prove(
    lake: "Lake",
    plan: "AnyPlan",
    planned: "PlannedSteps",
    worlds: list[int],
    kills: int,
    seed: int,
    seconds: float,
    tell: Tell,
) -> tuple[list["ProofResult"], list[str]]:
    """The results, and which faults time was too short for."""
    from loader.proof.elastic import prove_elastic
    from loader.proof.exactly_once import prove_exactly_once
    from loader.proof.faults import clean_packs, prove_under_faults
    from loader.proof.pack_loader_ranks import PackLoaderRanks
    from tools.faults.faulty_rank import faulty_program

    begin = time.monotonic()
    with PackLoaderRanks(lake, plan) as ranks:
        once = prove_exactly_once(
            ranks.program(),
            planned,
            world_sizes=worlds,
            num_kills=kills,
            seed=seed,
            seconds=seconds / 3,
            progress=lambda *n: tell("exactly once", *n),
        )
        ways = prove_elastic(
            ranks.variants(worlds),
            planned,
            seconds=seconds * 2 / 3 - (time.monotonic() - begin),
            progress=lambda *n: tell("elastic", *n),
        )
        results = [once, ways]
        left: list[str] = []
        plain = ranks.program(digests=True, process="inline")
        packs = clean_packs(plain, planned)
        faults = _faults()
        for number, fault in enumerate(faults):
            if time.monotonic() - begin > seconds:
                left.append(fault.kind)
                continue
            results.append(
                prove_under_faults(
                    faulty_program(ranks, [fault], seed),
                    plain,
                    packs,
                    planned,
                    what=_FAULTS[fault.kind],
                )
            )
            tell("faults", number + 1, len(faults))
    return results, left


_FAULTS: Final = {
    "slow_down": "the store refuses reads (503)",
    "reset": "connections are reset",
    "truncate": "replies are cut short",
    "flip": "bits are flipped on the way",
    "slow": "replies are late",
    "stall": "reads time out",
}


def _faults() -> list["Fault"]:
    from tools.faults.fault import KINDS, Fault

    return [
        Fault(kind=kind, rate=0.5, most=6, per_request=1, hold_s=0.05)
        for kind in KINDS
        if kind in _FAULTS
    ]


@contextmanager
def _progress(*, hidden: bool) -> Iterator[Tell]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    bars: dict[str, Any] = {}
    disable = hidden or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as shown:

        def tell(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = shown.add_task(name, total=total)
            shown.update(bars[name], completed=done)

        yield tell


def _said(result: "ProofResult") -> str:
    """The outcome in few words."""
    said = result.outcome.partition(":")[0]  # an error's class
    gave_up = result.proof == "faults" and result.counts.get("resumes")
    return f"ended in a named {said}, right when resumed" if gave_up and result.passed else said


def _verdict(result: "ProofResult") -> Text:
    if result.failed:
        return Text("FAILS", "red")
    if result.unproved:
        return Text(f"NOT PROVED, {result.unproved}", "yellow")
    return Text("holds", "green")


def _named(plan: str | None) -> str:
    return "a small plan made for this" if plan is None else f"plan {plan}"


def _range(planned: "PlannedSteps") -> str:
    whole = ", the whole plan" if planned.whole else ""
    return f"{planned.first_step} to {planned.stop_step}{whole}"


def _print(
    results: Sequence["ProofResult"], left: Sequence[str], title: str, stop_step: int
) -> None:
    console = Console(highlight=False)
    table = Table(title=title, title_justify="left")
    for column in ("proof", "what was tried", "compared", "result"):
        table.add_column(column, overflow="fold")
    for result in results:
        counts = result.counts
        compared = f"{counts.get('packs', 0):,} packs, {counts.get('spans', 0):,} spans"
        if result.stop_step < stop_step:
            compared += f", steps up to {result.stop_step}"
        outcome = _verdict(result)
        if result.outcome:
            outcome.append(f": {_said(result)}", "default")
        table.add_row(result.proof, result.tried, compared, outcome)
    console.print(table)
    for result in results:
        for difference in result.differences[:_SHOWN]:
            console.print(Text(f"{result.proof}: {difference}", style="red"), soft_wrap=True)
    if left:
        console.print(
            f"out of time, not tried: {', '.join(left)}; give more --seconds", soft_wrap=True
        )
