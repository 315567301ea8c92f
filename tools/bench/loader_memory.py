"""What the processes of a loader hold in memory: against the size of its plan, and as packs pass.

`python -m tools.bench.loader_memory` measures both, on plans of 1e3 to 1e7 spans and over 200,000
packs (about ten minutes); with `--quick` it stops at 1e6 spans and 20,000 packs. Each plan is
streamed in a fresh process, which is this module again.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lake.store import Lake

_ROOT: Final = Path(__file__).resolve().parents[2]
_MODULE: Final = "tools.bench.loader_memory"
_BUFFER_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Held:
    """Memory at one moment, in 1e6 bytes, pages of files left out (see `held_mb`).

    Attributes:
        packs: handed out by then.
        consumer_mb: of the process that iterates.
        decode_mb: of its decode process, 0 where there is none.
    """

    packs: int
    consumer_mb: float
    decode_mb: float


def held_at(
    lake: Lake,
    plan: str,
    marks: Sequence[int],
    *,
    process: str = "child",
    buffer_bytes: int = _BUFFER_BYTES,
) -> list[Held]:
    """Stream a saved plan in a fresh process, and look at its memory after some numbers of packs.

    Args:
        lake: that holds the plan.
        plan: name or hash.
        marks: numbers of packs, ascending.
        process: see `PackLoader`.
        buffer_bytes: see `PackLoader`.
    """
    options = {"process": process, "buffer_bytes": buffer_bytes, "framework": "numpy"}
    done = subprocess.run(
        [sys.executable, "-m", _MODULE, lake.uri, plan, json.dumps([list(marks), options])],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return [Held(**held) for held in json.loads(done.stdout)]


def against_plan_size(folder: Path, sizes: Sequence[int], packs: int = 400) -> dict[int, Held]:
    """Memory after some packs of plans with so many spans, their tables left in the lake.

    Every 100 spans have a row of `episodes` of their own.

    Args:
        folder: an empty one, for a lake.
        sizes: occurrences of spans.
        packs: streamed of each plan, fewer where it is shorter.
    """
    # Imported here: the process that is measured has none of it.
    from packing.plan_store import save_plan
    from tools.bench.large_plan import large_plan, signals_lake

    lake = signals_lake(folder)
    found = {}
    for spans in sizes:
        plan = large_plan(lake, spans=spans)
        saved = save_plan(lake, plan, f"spans-{spans}")
        marks = [min(packs, plan.packs.num_rows)]
        del plan
        (found[spans],) = held_at(lake, saved.name, marks)
    return found


def over_packs(folder: Path, marks: Sequence[int], *, process: str = "child") -> list[Held]:
    """Memory after so many packs of a plan that has as many, of a few windows each.

    Args:
        folder: an empty one, for a lake.
        marks: numbers of packs, ascending.
        process: see `PackLoader`.
    """
    from packing.plan_store import save_plan
    from tools.bench.large_plan import large_plan, signals_lake

    lake = signals_lake(folder)
    saved = save_plan(lake, large_plan(lake, packs=marks[-1], budget_tokens=128), "tiny-packs")
    return held_at(lake, saved.name, marks, process=process)


def _stream(lake: str, plan: str, marks: Sequence[int], options: dict[str, Any]) -> list[Held]:
    from loader import PackLoader
    from tools.bench.process_tree import held_mb, process_tree

    found = []
    with PackLoader(lake, plan, **options) as loader:
        batches = iter(loader)
        passed = 0
        for mark in marks:
            for _ in range(mark - passed):
                next(batches)
            passed = mark
            ours, *decoding = process_tree()
            found.append(
                Held(
                    packs=passed,
                    consumer_mb=held_mb(ours),
                    decode_mb=sum(held_mb(process) for process in decoding),
                )
            )
    return found


def _measure(*, quick: bool) -> dict[str, Any]:
    sizes = [10**3, 10**4, 10**5, 10**6, *([] if quick else [10**7])]
    marks = [1_000, *range(5_000, 20_001 if quick else 200_001, 5_000)]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        held = against_plan_size(Path(folder) / "sizes", sizes)
        found["plan_spans"] = {spans: asdict(one) for spans, one in held.items()}
        for process in ("child", "inline"):
            passed = over_packs(Path(folder) / process, marks, process=process)
            found[f"packs_{process}"] = [asdict(one) for one in passed]
    return found


def _main() -> None:
    if sys.argv[1:] in ([], ["--quick"]):
        found: Any = _measure(quick=bool(sys.argv[1:]))
    else:
        lake, plan, job = sys.argv[1:]
        marks, options = json.loads(job)
        found = [asdict(held) for held in _stream(lake, plan, marks, options)]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    _main()
