"""The run's row in the lake: evaluation -> checkpoint -> run -> plan -> selection -> episodes."""

import json
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from lake.insert import insert_new
from lake.store import Lake
from packing.plan_header import PlanHeader
from training.checkpoints.folder import write_synced
from training.config import TrainConfig
from training.distributed import Ranks, barrier
from training.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class Run:
    """Identity of a run, kept in `run.json` of its folder over all resumes.

    `plan_hash` is the plan that it began on; it may go on with a plan that continues that one.
    """

    run_id: str
    plan_hash: str


def enter_run(
    lake: Lake,
    header: PlanHeader,
    out: Path,
    config: TrainConfig,
    ranks: Ranks,
    *,
    resume: Literal["auto", "never"],
) -> Run:
    """Open the run of a folder, or begin one; every rank calls this.

    A new run gets a row in the lake's `runs` table. The row is keyed by the run's id and inserted
    again at each start, which changes nothing unless a kill had come in between.

    Raises:
        CheckpointError: the folder holds a run of another plan, or any run while `resume` is
            `never`, or a damaged `run.json`; or not all ranks see the folder.
    """
    run = _read_run(out / "run.json", header)
    if run is not None and resume == "never":
        raise CheckpointError(
            f"{out} already holds the run {run.run_id}: resume it, or use another --out"
        )
    barrier()  # all ranks have looked before the first one writes
    if ranks.is_first:
        run = run or _new_run(out, header.plan_hash)
        _record(lake, run, header, out, config)
    barrier()
    run = _read_run(out / "run.json", header)
    if run is None:
        raise CheckpointError(
            f"rank {ranks.rank} does not see what the first rank wrote into {out}: --out must be a"
            " folder that all nodes share"
        )
    return run


def _read_run(path: Path, header: PlanHeader) -> Run | None:
    if not path.exists():
        return None
    try:
        run = Run(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; use another --out") from error
    if run.plan_hash not in {header.plan_hash, *header.ancestors}:
        raise CheckpointError(
            f"{path.parent} holds a run on plan {run.plan_hash}, not on {header.plan_hash}: use"
            " another --out, or train with that plan"
        )
    return run


def _new_run(out: Path, plan_hash: str) -> Run:
    run = Run(run_id=uuid.uuid4().hex, plan_hash=plan_hash)
    partial = out / ".partial-run.json"
    write_synced(partial, (json.dumps(asdict(run)) + "\n").encode())
    partial.replace(out / "run.json")
    return run


def _record(lake: Lake, run: Run, header: PlanHeader, out: Path, config: TrainConfig) -> None:
    row = {
        "run_id": run.run_id,
        "plan_hash": run.plan_hash,
        "name": out.name,
        "out_dir": str(out.resolve()),
        "config_json": json.dumps(config.to_dict(), sort_keys=True),
        "versions_json": json.dumps(dict(header.versions), sort_keys=True),
        "time_ns": time.time_ns(),
    }
    insert_new(lake, "runs", pa.Table.from_pylist([row]))
