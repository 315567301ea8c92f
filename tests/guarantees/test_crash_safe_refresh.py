"""Promise: killed anywhere, a refresh leaves the last published catalog, and the next one heals.

Three ways to die, each by SIGKILL or a fatal signal, none of which runs any Python clean-up:
before a line of the catalog's code (so around every statement it gives DuckDB and every file
call), inside a write at a byte count (the kernel's file size limit: it hits the copy and DuckDB's
own writes), and at a random moment.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalog import Catalog, CatalogError, catalog_path, refresh_catalog, set_labels
from lake import Episode, EpisodeWriter, Lake

# Reads `KIND AMOUNT` lines, runs each in a fork (made before Lance or DuckDB started any
# thread), and answers with the wait status.
_VICTIMS = """
import os, resource, signal, sys, threading
from pathlib import Path
import catalog.reader, catalog.refresh, lake.store

HOME = str(Path(catalog.refresh.__file__).parent)

def die(): os.kill(os.getpid(), signal.SIGKILL)

def before_line(amount):
    left = amount
    def trace(frame, event, arg):
        nonlocal left
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                die()
        return trace
    sys.settrace(trace)

def in_write(amount):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (amount, amount))

def after_us(amount):
    timer = threading.Timer(amount / 1e6, die)
    timer.daemon = True
    timer.start()

for line in sys.stdin:
    kind, amount = line.split()
    child = os.fork()
    if child == 0:
        {"line": before_line, "byte": in_write, "time": after_us}[kind](int(amount))
        catalog.refresh.refresh_catalog(lake.store.open_lake(sys.argv[1]))
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""

Kill = Callable[[str, int], int]


@pytest.fixture
def victim(lake: Lake) -> Iterator[Kill]:
    """Refreshes in a process that dies as told; gives the signal, 0 where it lived."""
    with subprocess.Popen(
        [sys.executable, "-c", _VICTIMS, lake.uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def kill(kind: str, amount: int) -> int:
            to.write(f"{kind} {amount}\n")
            to.flush()
            status = int(back.readline())
            assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

        yield kill
        to.close()


def rows(catalog: Catalog) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = catalog.query("FROM episodes ORDER BY episode_id").to_pylist()
    return found


def shown(lake: Lake) -> list[dict[str, Any]]:
    """What the published catalog holds, read without a refresh."""
    with Catalog(lake, refresh=False) as catalog:
        return rows(catalog)


def rebuilt(lake: Lake, folder: Path) -> list[dict[str, Any]]:
    path = folder / "rebuilt.duckdb"
    path.unlink(missing_ok=True)
    with Catalog(lake, path) as catalog:
        return rows(catalog)


class Change:
    """Makes the next refresh load, drop and replace rows."""

    def __init__(self, lake: Lake, make_episode: Callable[..., Episode]) -> None:
        self.lake, self.make_episode, self.number = lake, make_episode, 0

    def __call__(self) -> None:
        with EpisodeWriter(self.lake) as writer:
            for _ in range(3):
                writer.add(self.make_episode(self.number, steps=4))
                self.number += 1
        first = self.make_episode(self.number - 3, steps=4).episode_id
        set_labels(self.lake, [first], quality=float(self.number))


@pytest.fixture
def change(lake: Lake, make_episode: Callable[..., Episode]) -> Change:
    return Change(lake, make_episode)


def survive(lake: Lake, kills: list[tuple[str, int]], victim: Kill, folder: Path) -> int:
    """Kill refreshes that all have something to do; returns how many died before publishing."""
    old, new = shown(lake), rebuilt(lake, folder)
    assert old != new
    before = 0
    for kind, amount in kills:
        died = victim(kind, amount)
        now = shown(lake)
        assert now in (old, new), f"{kind} {amount}"
        assert died or now == new, f"{kind} {amount}: it lived and published nothing"
        before += now == old
        if now == new:
            break  # nothing is left to do for a refresh
    refresh_catalog(lake)
    assert shown(lake) == new
    left = [path.name for path in Path(lake.uri).iterdir() if "catalog" in path.name]
    assert left == ["catalog.duckdb"]
    return before


def lines_of_a_refresh(victim: Kill) -> int:
    """A number of lines by which a refresh has ended, found by doubling."""
    lines = 64
    while victim("line", lines):
        lines *= 2
    return lines


def test_killed_before_any_line(lake: Lake, change: Change, victim: Kill, tmp_path: Path) -> None:
    change()
    refresh_catalog(lake)
    change()
    most = lines_of_a_refresh(victim)
    assert shown(lake) == rebuilt(lake, tmp_path)
    change()
    step = most // 24
    died = survive(lake, [("line", n) for n in range(1, most + step, step)], victim, tmp_path)
    assert died >= 10


def test_killed_inside_a_write(lake: Lake, change: Change, victim: Kill, tmp_path: Path) -> None:
    change()
    refresh_catalog(lake)
    change()
    size = catalog_path(lake).stat().st_size
    sizes = [0, 1, 4096, 12288, *range(size // 8, 2 * size, size // 8)]
    died = survive(lake, [("byte", amount) for amount in sizes], victim, tmp_path)
    assert died >= 8
    assert victim("byte", 0) == 0  # with nothing to do nothing is written


def test_killed_at_random_moments(lake: Lake, change: Change, victim: Kill, tmp_path: Path) -> None:
    change()
    refresh_catalog(lake)
    rng = np.random.default_rng(7)
    for _ in range(3):
        change()
        moments = np.sort(rng.integers(1_000, 400_000, 4))
        survive(lake, [("time", int(moment)) for moment in moments], victim, tmp_path)


def test_killed_before_there_was_a_catalog(
    lake: Lake, change: Change, victim: Kill, tmp_path: Path
) -> None:
    change()
    for kind, amount in (("line", 60), ("byte", 0), ("byte", 8192), ("time", 60_000)):
        if victim(kind, amount) and not catalog_path(lake).exists():
            with pytest.raises(CatalogError, match="no catalog yet"):
                shown(lake)
    refresh_catalog(lake)
    assert shown(lake) == rebuilt(lake, tmp_path)
    assert not list(Path(lake.uri).glob(".catalog*"))


def test_a_full_disk_is_an_error_and_changes_nothing(lake: Lake, change: Change) -> None:
    """A file size limit, its signal ignored as Python does, stands in for the disk."""
    change()
    refresh_catalog(lake)
    old = shown(lake)
    change()
    code = (
        "import resource, sys, lake, catalog\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "try:\n"
        "    catalog.refresh_catalog(lake.open_lake(sys.argv[1]))\n"
        "except catalog.CatalogError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, lake.uri], capture_output=True, text=True, check=True
    )
    assert "cannot be refreshed" in done.stdout
    assert "check free space" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert shown(lake) == old
