"""One training process that a test may kill: `python -m tests.training.train_worker JSON`."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from lake import open_lake
from packing.plan_store import load_plan
from tests.training.plans import train_config
from training.loop import train
from training.metrics import StepMetrics


def main() -> None:
    """Train; from step `kill_step` on, SIGKILL strikes after `kill_after_s`."""
    job = json.loads(sys.argv[1])
    lake = open_lake(job["lake"])

    def on_step(metrics: StepMetrics, total: int) -> None:
        del total
        if metrics.step == job["kill_step"]:
            threading.Timer(job["kill_after_s"], _strike).start()

    result = train(
        lake,
        load_plan(lake, job["plan"]),
        Path(job["out"]),
        train_config(process=job["process"]),
        on_step=on_step if job["kill_step"] is not None else None,
    )
    sys.stdout.write(json.dumps({"steps": result.steps, "resumed_from": result.resumed_from}))


def _strike() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
