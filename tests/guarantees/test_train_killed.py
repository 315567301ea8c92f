"""Guarantee: SIGKILL training anywhere, resume: every planned span once, and the same bits."""

import hashlib
import random
import shutil
import socket
from pathlib import Path
from typing import Literal

import pytest
import torch

from lake import Lake
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.training.plans import make_lake, plan_windows, train_config
from tests.training.train_worker import Job, run, training_processes
from training.checkpoints.folder import latest_checkpoint
from training.logs.ledger import surviving_trajectory
from training.logs.metrics import read_metrics
from training.loop import train
from training.policy import load_model

_SIGKILLED = -9
# Nine processes train one after another; the limit is for a machine that does much else.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Plan]:
    lake = make_lake(tmp_path_factory.mktemp("killed") / "robots.lake")
    plan = plan_windows(lake, slots=3, epochs=8)
    save_plan(lake, plan, "killed")
    return lake, plan


def launch(
    lake: Lake,
    out: Path,
    *,
    world_size: int,
    process: str = "inline",
    strategy: Literal["ddp", "fsdp2"] = "ddp",
    kill: tuple[int, float] | None = None,
) -> None:
    """Start the processes of a run; wait for their end, by SIGKILL where `kill` says when."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    logs = [out.with_name(f"{out.name}-{port}-rank{rank}.log") for rank in range(world_size)]
    workers = []
    for rank, log in enumerate(logs):
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
        }
        job = Job(
            lake=lake.uri,
            plan="killed",
            out=out,
            process=process,
            strategy=strategy,
            environment=environment,
            log=log,
            # The first rank is struck; the others must notice.
            kill=kill if rank == 0 else None,
        )
        worker = training_processes().Process(target=run, args=(job,), daemon=True)
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join(timeout=90)
    codes = [worker.exitcode for worker in workers]
    expected = 0 if kill is None else _SIGKILLED
    assert codes[0] == expected, [log.read_text() for log in logs]
    for code, log in zip(codes[1:], logs[1:], strict=True):
        # Who is left behind ends by itself, and says why.
        assert code == (0 if kill is None else 1)
        assert ("RankLostError" in log.read_text()) == (kill is not None)


Pack = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


def consumed(out: Path) -> list[Pack]:
    return [
        (p.step, p.slot, p.epoch, p.span_ids, p.occurrences)
        for p in surviving_trajectory(out / "ledger")
    ]


def planned_spans(plan: Plan) -> list[Pack]:
    columns = plan.packs.select(["step", "slot", "epoch", "span_id", "occurrence"]).to_pydict()
    rows = zip(*columns.values(), strict=True)
    return [
        (step, slot, epoch, tuple(ids), tuple(times))
        for step, slot, epoch, ids, times in rows
        if ids
    ]


def digest(out: Path) -> str:
    checkpoint = latest_checkpoint(out / "checkpoints")
    assert checkpoint is not None
    return hashlib.sha256((checkpoint / "policy.safetensors").read_bytes()).hexdigest()


def losses(out: Path) -> list[tuple[int, float, float]]:
    return [(m["step"], m["loss"], m["grad_norm"]) for m in read_metrics(out / "metrics.jsonl")]


def test_plan_has_what_the_tests_need(planned: tuple[Lake, Plan]) -> None:
    _, plan = planned
    spans = [(epoch, i) for _, _, epoch, ids, _ in planned_spans(plan) for i in ids]
    assert plan.num_steps >= 16
    assert len(spans) == len(set(spans)) == 8 * plan.header.num_spans


def test_one_process_killed_and_resumed(planned: tuple[Lake, Plan], tmp_path: Path) -> None:
    lake, plan = planned
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(lake, plan, whole, train_config())
    rng = random.Random(7)
    resumed = 0
    for depth in range(3):
        # A checkpoint every two steps, written while the next two are trained.
        step = resumed + rng.randint(4, 5)
        launch(
            lake,
            killed,
            world_size=1,
            process="child" if depth == 1 else "inline",
            kill=(step, rng.uniform(0, 0.02)),
        )
        checkpoint = latest_checkpoint(killed / "checkpoints")
        resumed = int(checkpoint.name.removeprefix("step-")) if checkpoint else 0
    result = train(lake, plan, killed, train_config())
    assert result.resumed_from == resumed > 0
    assert result.finished
    assert consumed(killed) == planned_spans(plan)
    assert losses(killed) == losses(whole)
    assert digest(killed) == digest(whole)


def test_two_processes_killed_and_resumed(planned: tuple[Lake, Plan], tmp_path: Path) -> None:
    """By two processes to the same bits; by one to the same spans, and losses to rounding."""
    lake, plan = planned
    whole, killed, by_one = tmp_path / "whole", tmp_path / "killed", tmp_path / "by_one"
    launch(lake, whole, world_size=2)
    launch(lake, killed, world_size=2, kill=(7, 0.005))
    shutil.copytree(killed, by_one)
    launch(lake, killed, world_size=2)
    assert consumed(whole) == planned_spans(plan)
    assert consumed(killed) == planned_spans(plan)
    assert losses(killed) == losses(whole)
    assert digest(killed) == digest(whole)

    assert train(lake, plan, by_one, train_config()).resumed_from
    assert consumed(by_one) == planned_spans(plan)
    for one, other in zip(losses(whole), losses(by_one), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_shards_go_on_with_two_one_and_two_processes(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    """Weights and moments are cut anew for the ranks that are there."""
    lake, plan = planned
    alone, run = tmp_path / "alone", tmp_path / "run"
    train(lake, plan, alone, train_config())
    launch(lake, run, world_size=2, strategy="fsdp2", kill=(5, 0.0))
    launch(lake, run, world_size=1, strategy="fsdp2", kill=(9, 0.0))
    launch(lake, run, world_size=2, strategy="fsdp2")
    assert consumed(run) == planned_spans(plan)
    for one, other in zip(losses(alone), losses(run), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    whole, shared = (load_model(folder).state_dict() for folder in (alone, run))
    for name, weight in whole.items():
        torch.testing.assert_close(weight, shared[name], rtol=1e-3, atol=1e-5)
