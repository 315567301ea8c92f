"""What all benches share: interleaved repetitions, medians with spread, provenance, one table.

A bench module has `run(quick: bool) -> BenchResult`. Contenders run interleaved (A B C, A B C, ...)
on the same data in the same order, so a machine that slows down slows all of them.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_PACKAGES = ("headrace", "pylance", "pyarrow", "duckdb", "av", "numpy", "torch", "h5py", "numba")
_WIDE = 10_000

Name = TypeVar("Name")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One run of one contender, in seconds.

    Attributes:
        wall_s: elapsed.
        cpu_s: user and system time of this process and of the children it has waited for.
    """

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """What a bench found.

    Attributes:
        name: the bench.
        rows: one flat object per line of the printed table; all with the same keys.
        ratios: flat object of the figures that an aim names.
        notes: what a reader must know to judge the figures (data, order, caveats).
        tables: further tables by title, each like `rows`.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    ratios: Mapping[str, float]
    notes: Sequence[str] = field(default_factory=tuple)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def cpu_seconds() -> float:
    """CPU seconds used so far by this process and its finished children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measure(work: Callable[[], object]) -> Timing:
    """Time one call."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    return Timing(wall_s=time.perf_counter() - wall, cpu_s=cpu_seconds() - cpu)


def interleave(
    contenders: Mapping[str, Callable[[], object]], *, repetitions: int, warm_up: bool = True
) -> dict[str, list[Timing]]:
    """Run every contender `repetitions` times, one after the other within each repetition.

    Args:
        contenders: name -> a call that does the same work as every other one.
        repetitions: timed rounds.
        warm_up: run each once untimed first, so that page cache and imports are alike.
    """
    if warm_up:
        for work in contenders.values():
            work()
    timings: dict[str, list[Timing]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, work in contenders.items():
            timings[name].append(measure(work))
    return timings


def take_turns(
    contenders: Mapping[Name, Callable[[], Sequence[Outcome]]], *, repetitions: int
) -> dict[Name, list[Outcome]]:
    """As `interleave`, for contenders that measure themselves.

    Args:
        contenders: name -> a call that does the work and tells how it went, part by part.
        repetitions: rounds.
    """
    outcomes: dict[Name, list[Outcome]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, work in contenders.items():
            outcomes[name] += work()
    return outcomes


def spread(values: Sequence[float]) -> str:
    """`median [least, most]` to three significant digits."""
    middle, least, most = (
        _digits(value, 3) for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} [{least}, {most}]"


def _digits(value: float, significant: int) -> str:
    """Rounded; thousands with separators in place of an exponent such as 4.33e+04."""
    rounded = float(f"{value:.{significant}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def provenance() -> dict[str, Any]:
    """Commit, versions and machine, as they go into the JSON."""
    root = Path(__file__).parents[2]
    commit = "unknown"
    if (root / ".git").exists():
        git = ["git", "-C", str(root)]
        commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
        if subprocess.check_output([*git, "status", "--porcelain"], text=True):
            commit += "-dirty"
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "commit": commit,
        "versions": versions,
        "machine": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
            ),
            "system": f"{platform.system()} {platform.release()}",
            "load_1min": round(os.getloadavg()[0], 2),
        },
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def report(result: BenchResult, *, quick: bool, json_to: str | None) -> None:
    """Print the table (to stderr where JSON goes to stdout) and write the JSON.

    Args:
        result: what the bench returned.
        quick: recorded in the JSON, so that a short run is never read as a full one.
        json_to: path of the JSON file, `-` for stdout, None for no JSON.
    """
    console = Console(stderr=json_to == "-")
    _print(console, result)
    if json_to is None:
        return
    document = {
        "name": result.name,
        "quick": quick,
        **provenance(),
        "rows": [dict(row) for row in result.rows],
        "tables": {title: [dict(row) for row in rows] for title, rows in result.tables.items()},
        "ratios": dict(result.ratios),
        "notes": list(result.notes),
    }
    text = json.dumps(document, indent=2, allow_nan=False)
    if json_to == "-":
        sys.stdout.write(text + "\n")
        return
    target = Path(json_to)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(target)


def _print(console: Console, result: BenchResult) -> None:
    _print_table(console, f"headrace bench {result.name}", result.rows)
    for title, rows in result.tables.items():
        _print_table(console, title, rows)
    for name, value in result.ratios.items():
        console.print(f"{name} = {_digits(value, 4)}", highlight=False)
    for note in result.notes:
        console.print(f"- {note}", style="dim", highlight=False, markup=False)


def _print_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    console.print(title, style="italic", highlight=False)
    table = Table()
    names = list(rows[0]) if rows else []
    for name in names:
        table.add_column(name, justify="left" if name == names[0] else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    widest = Measurement.get(console, console.options.update(width=_WIDE), table).maximum
    console.print(table if widest <= console.width else _upright(names, rows))


def _upright(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A figure per line, for terminals that are narrower than a contender's row."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        for name in names:
            table.add_row(name, _cell(row[name]))
        table.add_section()
    return table


def _cell(value: object) -> str:
    return _digits(value, 4) if isinstance(value, float) else str(value)
