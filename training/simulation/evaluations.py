"""An assessment as a row of the lake's `evaluations` table: what the lineage ends in."""

import hashlib
import json
import time
from typing import Any

import pyarrow as pa

from lake.insert import insert_new
from lake.store import Lake
from training.simulation.assess import Assessment, Score
from training.simulation.recorder import TASK


def assessment_json(assessment: Assessment) -> dict[str, Any]:
    """Plain values of an assessment, without its pictures."""
    return {
        "policy": assessment.policy,
        "purpose": assessment.purpose.name.lower(),
        "seed": assessment.seed,
        "mean_steps_of_successes": assessment.mean_steps,
        **_score_json(assessment.total),
        "by_instruction": {
            text: _score_json(score) for text, score in assessment.by_instruction.items()
        },
    }


def write_evaluation(
    lake: Lake, assessment: Assessment, *, run_id: str | None, checkpoint: str
) -> str:
    """Add an assessment to `evaluations`.

    The same result of the same checkpoint on the same starts is one row, however often written.

    Args:
        lake: where to.
        assessment: the outcome.
        run_id: training run that made the checkpoint (a row of `runs`), or None if unknown.
        checkpoint: name or path of the checkpoint.

    Returns:
        The evaluation's id.
    """
    detail = json.dumps(assessment_json(assessment), sort_keys=True)
    key = "\0".join([run_id or "", checkpoint, detail])
    evaluation_id = hashlib.sha256(key.encode()).hexdigest()[:16]
    low, high = assessment.total.interval
    row = {
        "evaluation_id": evaluation_id,
        "run_id": run_id,
        "checkpoint": checkpoint,
        "task": TASK,
        "episodes": assessment.total.episodes,
        "successes": assessment.total.successes,
        "wilson_low": low,
        "wilson_high": high,
        "detail_json": detail,
        "time_ns": time.time_ns(),
    }
    insert_new(lake, "evaluations", pa.Table.from_pylist([row]))
    return evaluation_id


def _score_json(score: Score) -> dict[str, Any]:
    low, high = score.interval
    return {
        "episodes": score.episodes,
        "successes": score.successes,
        "wrong_block": score.wrong,
        "success_rate": score.rate,
        "wilson_low": low,
        "wilson_high": high,
    }
