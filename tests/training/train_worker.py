"""Training in processes that start in milliseconds, to be killed often."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Literal

from lake import open_lake
from packing.plan_store import load_plan
from tests.training.plans import train_config
from training.logs.metrics import StepMetrics
from training.loop import train


@dataclass(frozen=True, kw_only=True)
class Job:
    """One rank of a training that a test may kill.

    Attributes:
        lake, plan: what to train on.
        out: folder of the run.
        process: `inline` or `child`, of the loader.
        strategy: by which ranks share the weights.
        environment: variables of torchrun.
        log: file that gets stdout and stderr.
        kill: (step, seconds): SIGKILL strikes that long after that step.
    """

    lake: str
    plan: str
    out: Path
    process: str
    strategy: Literal["ddp", "fsdp2"]
    environment: Mapping[str, str]
    log: Path
    kill: tuple[int, float] | None


def training_processes() -> ForkServerContext:
    """Processes that have imported torch and the loop, but used nothing of them yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def run(job: Job) -> None:
    """Train, to the end or to the kill."""
    with job.log.open("wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    os.environ.update(job.environment)
    lake = open_lake(job.lake)

    def on_step(metrics: StepMetrics, total: int) -> None:
        del total
        if job.kill is not None and metrics.step == job.kill[0]:
            threading.Timer(job.kill[1], os.kill, (os.getpid(), signal.SIGKILL)).start()

    config = train_config(process=job.process, strategy=job.strategy)
    train(lake, load_plan(lake, job.plan), job.out, config, on_step=on_step)
