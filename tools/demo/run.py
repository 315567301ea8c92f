"""Runs the demo: each stage is the command a user would type, in a process of its own."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from lake.errors import HeadraceError
from tools.demo.script import DemoSize, Stage, stages

_MARK: Final = ".headrace-demo"
_NEEDED: Final = ("torch", "mujoco", "h5py", "matplotlib")
_PICTURES: Final = {
    "recording.png": "the scripted expert",
    "plan.png": "the plan: fill, balance, shares, length bias",
    "run/loss.png": "the loss",
    "rollout.png": "the trained policy at work",
}


class DemoError(HeadraceError):
    """The demo cannot start, or one of its commands failed."""


class DemoStoppedError(DemoError):
    """The user stopped it."""

    exit_code = 130  # 128 + SIGINT, as shells have it


def run_demo(out: Path, *, size: DemoSize, seed: int, recordings: Sequence[Path]) -> None:
    """Run all stages, printing every command before its output.

    Args:
        out: folder for all that the demo writes; one left by an earlier demo is replaced.
        size: how much to do.
        seed: of everything random.
        recordings: further recordings to ingest.

    Raises:
        DemoError: a package that it needs is absent, `out` is a folder of something else, or a
            command failed or was stopped.
    """
    console = Console(highlight=False)
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise DemoError(f"the demo needs {', '.join(absent)}: pip install 'headrace[torch,sim]'")
    _claim(out)
    cameras, reason = _rendering()
    if not cameras:
        console.print(
            f"This machine cannot render pictures ({reason}). The demo goes on without cameras: the"
            " policy is told where the blocks lie, which the simulator knows, in place of seeing"
            " them, and learns from four times as many demonstrations.",
            style="yellow",
            markup=False,
        )
    begin = time.perf_counter()
    todo = stages(out, size=size, seed=seed, cameras=cameras, recordings=recordings)
    for number, stage in enumerate(todo, 1):
        _run_stage(console, stage, f"{number}/{len(todo)}")
    _summary(console, out, time.perf_counter() - begin)


def _claim(out: Path) -> None:
    """Make the folder, or empty the one of an earlier demo; never someone else's."""
    if out.exists():
        if not (out / _MARK).is_file():
            raise DemoError(f"{out} exists and is not an earlier demo's: give another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / _MARK).touch()


def _rendering() -> tuple[bool, str]:
    """Whether the simulation can render here, and why not. Tried in a child: GL can crash."""
    code = (
        "from training.simulation.scene import Scene\n"
        "from training.simulation.mjcf import CAMERAS\n"
        "with Scene(None, cameras=CAMERAS): pass\n"
    )
    tried = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    lines = tried.stderr.strip().splitlines()
    return tried.returncode == 0, lines[-1] if lines else f"exit {tried.returncode}"


def _run_stage(console: Console, stage: Stage, number: str) -> None:
    console.rule(f"{number}  {stage.title}", align="left")
    console.print(stage.why, style="dim")
    console.print(
        "$ headrace " + " ".join(_quoted(argument) for argument in stage.arguments),
        style="bold",
        markup=False,
        soft_wrap=True,
    )
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tools.cli", *stage.arguments],
            check=False,
            # Contended threads slow torch down many times over on a small machine.
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
    except KeyboardInterrupt as error:
        raise DemoStoppedError("the demo, given again, starts from the beginning") from error
    if done.returncode:
        raise DemoError(
            f"the command above ended with exit code {done.returncode}; the demo stops here"
        )
    console.print(f"{time.perf_counter() - begin:.1f} s\n", style="dim")


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument or "'" in argument else argument


def _summary(console: Console, out: Path, seconds: float) -> None:
    table = Table(title=f"done in {seconds:.0f} s; look at", title_justify="left")
    table.add_column("picture", no_wrap=True)
    table.add_column("shows")
    for name, shows in _PICTURES.items():
        if (out / name).is_file():
            table.add_row(str(out / name), shows)
    console.print(table)
    lake = out / "demo.lake"
    command = "headrace" if shutil.which("headrace") else sys.argv[0]  # as in .venv/bin/headrace
    console.print("Go on:")
    for arguments in (f"sql {lake}", f"plan show {lake} demo", f"doctor {lake}"):
        console.print(f"  {command} {arguments}", markup=False, soft_wrap=True)
