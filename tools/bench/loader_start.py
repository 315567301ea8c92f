"""How soon a fresh process has its first batch, and what its processes hold in memory.

`python -m tools.bench.loader_start JOB` runs one start and prints its figures; `starts` does that,
each in a process of its own.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lake import Lake
from tools.bench.framework import spread
from tools.bench.process_tree import memory_mb

_ROOT: Final = Path(__file__).resolve().parents[2]
_IMPORTS: Final = ("import loader", "from loader import PackLoader")


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start.

    Attributes:
        open_s: opening the lake and its plan.
        first_batch_s: from there to the first batch, the start of decode processes included.
        memory_mb: of all processes after some batches, shared pages counted once.
    """

    open_s: float
    first_batch_s: float
    memory_mb: float

    @property
    def total_s(self) -> float:
        """From after the imports to the first batch."""
        return self.open_s + self.first_batch_s


def start(
    lake: Lake,
    plan: str,
    *,
    batches: int,
    **options: Any,  # noqa: ANN401  # checked by PackLoader
) -> list[Start]:
    """Open a lake and take the first batches of a plan, in a fresh process.

    Args:
        lake: the lake.
        plan: hash or name of a plan that it holds.
        batches: taken before memory is looked at.
        **options: of `PackLoader`.
    """
    job = {
        "lake": lake.uri,
        "storage_options": dict(lake.storage_options),
        "plan": plan,
        "batches": batches,
        "options": options,
    }
    return [Start(**_fresh(["-m", "tools.bench.loader_start"], json.dumps(job)))]


def import_seconds(repetitions: int) -> dict[str, float]:
    """Median wall seconds that a fresh interpreter takes for each import, over one for none."""
    found = {}
    for code in _IMPORTS:
        text = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        seconds = [float(_fresh(["-c", text])) for _ in range(repetitions)]
        found[code] = statistics.median(seconds)
    return found


def start_rows(starts: Mapping[str, Sequence[Start]]) -> list[dict[str, Any]]:
    """Lines of the table."""
    return [
        {
            "process mode": name,
            "lake and plan, s": spread([s.open_s for s in runs]),
            "first batch, s": spread([s.first_batch_s for s in runs]),
            "together, s": spread([s.total_s for s in runs]),
            "memory of all processes, MB": spread([s.memory_mb for s in runs]),
        }
        for name, runs in starts.items()
    ]


def _fresh(arguments: list[str], stdin: str = "") -> Any:  # noqa: ANN401  # what was printed
    """Run a fresh interpreter and parse the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        input=stdin,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)


def _main() -> None:
    import torch  # noqa: F401  # what trainers have imported before they open a loader

    from lake import open_lake
    from loader import PackLoader

    job = json.loads(sys.stdin.read())
    begin = time.perf_counter()
    lake = open_lake(job["lake"], storage_options=job["storage_options"])
    with PackLoader(lake, job["plan"], **job["options"]) as loader:
        opened = time.perf_counter()
        batches = iter(loader)
        next(batches)
        had = time.perf_counter()
        for _ in range(min(job["batches"], loader.num_steps) - 1):
            next(batches)
        found = Start(
            open_s=opened - begin,
            first_batch_s=had - opened,
            memory_mb=memory_mb(),
        )
    sys.stdout.write(json.dumps(asdict(found)))


if __name__ == "__main__":
    _main()
