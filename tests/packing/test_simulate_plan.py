"""Jobs on paper: loads counted by hand, queues worked out by hand."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lake import Episode, Lake
from lake.errors import HeadraceError
from packing.cost import CostModel
from packing.errors import PackingError, PlanError
from packing.extend_plan import extend_plan
from packing.job_time import JobSpeed, job_time, waits_of
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.simulate_picture import draw_simulation
from packing.simulate_plan import simulate_plan
from packing.storage.facts import StorageFacts, read_storage_facts
from packing.trajectory_spans import TrajectorySpans
from packing.window_spans import WindowSpans
from tools.cli import build_app


@pytest.fixture
def lengths(
    write: Callable[[Sequence[Episode]], Lake], make_episode: Callable[..., Episode]
) -> Lake:
    """Seven episodes of 60, 50, ... steps."""
    steps = (60, 50, 40, 30, 20, 10, 5)
    return write([make_episode(number, steps=count) for number, count in enumerate(steps)])


@pytest.fixture
def plan(lengths: Lake) -> Plan:
    """One episode per pack: four slots a step, so two steps, of which one slot is empty."""
    return make_plan(
        lengths,
        spans=TrajectorySpans(observe_every=1000),
        layout=TokenLayout(image_tokens=0, state_tokens=0, action_tokens=1),
        budget_tokens=128,
        slots_per_step=4,
        max_spans=1,
        balance_window_steps=1,
    )


def _facts(lake: Lake, plan: Plan) -> StorageFacts:
    return read_storage_facts(lake, plan.header, plan.episodes)


def _tables(plan: Plan) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Tokens and squared tokens [steps, slots], read from the rows."""
    rows = plan.packs.to_pylist()
    shape = (plan.num_steps, plan.header.slots_per_step)
    return tuple(
        np.array([row[name] for row in rows], float).reshape(shape) for name in ("tokens", "sum_sq")
    )  # type: ignore[return-value]


def test_loads_are_those_of_the_rows(lengths: Lake, plan: Plan) -> None:
    tokens, squares = _tables(plan)
    facts = _facts(lengths, plan)
    for world, groups in ((1, [[0, 1, 2, 3]]), (2, [[0, 2], [1, 3]]), (4, [[0], [1], [2], [3]])):
        cost = CostModel.of_width(10)
        job = simulate_plan(plan, facts, world, cost=cost)
        ours = np.stack([tokens[:, group].sum(axis=1) for group in groups], axis=1)
        costs = np.stack(
            [(60 * tokens + squares)[:, group].sum(axis=1) for group in groups], axis=1
        )
        assert job.tokens_of_rank.mean == ours.mean()
        assert job.tokens_of_rank.max == ours.max()
        assert job.tokens_max_over_mean == pytest.approx(ours.max(1).sum() / ours.mean(1).sum())
        assert job.cost_max_over_mean == pytest.approx(costs.max(1).sum() / costs.mean(1).sum())
        assert job.max_cost.tolist() == pytest.approx((costs.max(1) / costs.mean()).tolist())
        assert job.packs_per_rank == 4 // world
        assert job.time is None


def test_the_last_step_is_not_full(lengths: Lake, plan: Plan) -> None:
    job = simulate_plan(plan, _facts(lengths, plan), 4)
    [epoch] = job.epochs
    assert (epoch.steps, epoch.spans, epoch.last_step_packs) == (2, 7, 3)
    assert epoch.last_step_idle_ranks == job.idle_rank_steps == 1
    assert epoch.tokens == int(_tables(plan)[0].sum())
    assert simulate_plan(plan, _facts(lengths, plan), 2).idle_rank_steps == 0
    # Three ranks take four slots by two each, and two of them have one in each step.
    assert simulate_plan(plan, _facts(lengths, plan), 3).packs_per_rank == 2


def test_the_plan_s_own_balance_is_found_again(lengths: Lake) -> None:
    plan = make_plan(lengths, spans=WindowSpans(horizon=7), budget_tokens=128, slots_per_step=4)
    job = simulate_plan(plan, _facts(lengths, plan), 4)
    full = _tables(plan)[0].all(axis=1)
    assert 0 < full.sum() < plan.num_steps
    ratio = job.max_cost[full].sum() / job.mean_cost[full].sum()
    assert ratio == pytest.approx(plan.header.quality.max_over_mean[4])
    assert job.worst_max_over_mean == pytest.approx((job.max_cost / job.mean_cost)[full].max())
    assert job.storage == next(u for u in plan.header.quality.storage if u.world_size == 4)


def test_a_grown_plan_goes_on(
    lengths: Lake,
    plan: Plan,
    write: Callable[[Sequence[Episode]], Lake],
    make_episode: Callable[..., Episode],
) -> None:
    lake = write([make_episode(50 + number, steps=33) for number in range(6)])
    grown = extend_plan(lake, plan)
    job = simulate_plan(grown, _facts(lake, grown), 2)
    alone = simulate_plan(plan, _facts(lengths, plan), 2)
    assert job.epochs[0] == alone.epochs[0]
    assert [epoch.epoch for epoch in job.epochs] == [0, 1]
    assert (job.epochs[1].spans, job.epochs[1].tokens) == (6, 6 * (33 + len("lift block 50") + 2))
    assert job.steps == sum(epoch.steps for epoch in job.epochs)
    ratio = alone.max_cost / alone.mean_cost
    assert (job.max_cost / job.mean_cost)[: plan.num_steps].tolist() == pytest.approx(
        ratio.tolist()
    )


def test_waiting_worked_out_by_hand() -> None:
    # Making takes 3 each, a step 2: it waits 3 for the first, then 1 for each.
    made, step = np.full((1, 4), 3.0), np.full((1, 4), 2.0)
    assert waits_of(made, step, 2, together=True).tolist() == [[3, 1, 1, 1]]
    # A slow one is made ahead where memory allows: steps of 4 against 1, 1, 10, 1, 1.
    made, step = np.array([[1.0, 1, 10, 1, 1]]), np.full((1, 5), 4.0)
    # Ready at 1, 2, 12, 13, 14; begun at 1, 5, 12, 16, 20.
    assert waits_of(made, step, 5, together=True).tolist() == [[1, 0, 3, 0, 0]]
    # With memory for one, each is made after the one before has begun: 1, 2, 15, 16, 20.
    assert waits_of(made, step, 1, together=True).tolist() == [[1, 0, 6, 0, 0]]


def test_ranks_of_a_job_wait_for_each_other() -> None:
    made, step = np.array([[1.0, 1, 1], [1, 9, 1]]), np.full((2, 3), 2.0)
    # The second step is ready at 2 and at 10, so both begin it at 10.
    assert waits_of(made, step, 3, together=True).tolist() == [[1, 7, 0], [1, 7, 0]]
    assert waits_of(made, step, 3, together=False).tolist() == [[1, 0, 0], [1, 7, 0]]


def test_time_of_a_job(filmed_plan: tuple[Lake, Plan]) -> None:
    lake, plan = filmed_plan
    facts = _facts(lake, plan)
    job = simulate_plan(plan, facts, 2, speed=JobSpeed(step_ms=10.0, latency_ms=0, decode_ms=0))
    assert job.time is not None
    assert job.time.step_ms.mean == pytest.approx(10.0 * job.max_cost.mean())
    assert job.time.compute_s == pytest.approx(0.01 * job.max_cost.sum())
    assert job.time.wait_share < 0.01  # a disk of 500 MB/s, and nothing else
    assert job.time.busy_cores == 0
    slow = simulate_plan(plan, facts, 2, speed=JobSpeed(step_ms=1.0, decode_ms=20.0, latency_ms=0))
    assert slow.time is not None
    made = slow.storage.decoded_frames * 20.0
    assert slow.time.production_ms.mean == pytest.approx(made, rel=0.01)
    assert slow.time.busy_cores == pytest.approx(made / slow.time.step_ms.mean)
    # Data is made slower than it is used: the time is that of making it.
    total = slow.time.compute_s / (1 - slow.time.wait_share)
    assert total == pytest.approx(made * plan.num_steps / 1e3, rel=0.15)
    two = simulate_plan(
        plan, facts, 2, speed=JobSpeed(step_ms=1.0, decode_ms=20.0, latency_ms=0, num_workers=2)
    )
    assert two.time is not None
    assert two.time.total_s < 0.75 * slow.time.total_s
    with pytest.raises(PlanError, match="needs step_ms"):
        job_time(job.replayed, facts, job.max_cost, JobSpeed())


def test_latency_counts_by_the_call(filmed_plan: tuple[Lake, Plan]) -> None:
    lake, plan = filmed_plan
    speed = JobSpeed(
        step_ms=1.0, latency_ms=100.0, decode_ms=0.0, bandwidth_mb_s=1e9, parallel_requests=10**9
    )
    job = simulate_plan(plan, _facts(lake, plan), 1, speed=speed)
    assert job.time is not None
    assert job.time.production_ms.mean == pytest.approx(200.0 * job.storage.calls.mean, rel=1e-3)


@pytest.mark.parametrize("wrong", [{"step_ms": 0.0}, {"latency_ms": -1.0}, {"num_workers": 0}])
def test_impossible_speeds(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=rf"{next(iter(wrong))} is .*: it must be above 0"):
        JobSpeed(**wrong)


@pytest.fixture
def filmed_plan(
    write: Callable[[Sequence[Episode]], Lake], make_episode: Callable[..., Episode]
) -> tuple[Lake, Plan]:
    lake = write([make_episode(n, steps=20 + 3 * n, camera_names=("top",)) for n in range(8)])
    plan = make_plan(
        lake,
        spans=WindowSpans(horizon=4),
        layout=TokenLayout(image_tokens=16),
        budget_tokens=128,
        slots_per_step=2,
        epochs=2,
    )
    return lake, plan


def test_command(filmed_plan: tuple[Lake, Plan], tmp_path: Path) -> None:
    lake, plan = filmed_plan
    save_plan(lake, plan, "mix")

    def run(*args: object) -> str:
        words = ["plan", "simulate", lake.uri, "mix", *map(str, args)]
        result = CliRunner().invoke(build_app(), words)
        assert result.exit_code == 0, result.output
        return result.stdout

    text = run("--step-ms", 20, "--d-model", 64)
    for part in (
        "on 2 ranks",
        "decoding",
        "look-ahead",
        "step time",
        "waiting",
        "epochs",
        "storage",
    ):
        assert part in text
    assert "waiting" not in run("--world-size", 1)
    document = json.loads(run("--world-size", 1, "--step-ms", 20, "--workers", 2, "--json"))
    assert document["world_size"] == 1
    assert document["storage"]["requests_per_step"] == document["storage"]["requests"]["mean"]
    assert document["time"]["step_ms"]["mean"] == pytest.approx(20)
    assert document["speed"]["num_workers"] == 2
    assert len(document["epochs"]) == 2
    assert json.loads(run("--json"))["time"] is None
    far = json.loads(run("--fetch-block-kb", 64, "--json"))["storage"]["requests"]["mean"]
    near = json.loads(run("--fetch-block-kb", 0.25, "--json"))["storage"]["requests"]["mean"]
    assert far < near
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    run("--picture", tmp_path / "job.svg", "--step-ms", 20)
    assert (tmp_path / "job.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_picture_that_cannot_be_written(filmed_plan: tuple[Lake, Plan], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    lake, plan = filmed_plan
    job = simulate_plan(plan, _facts(lake, plan), 1)
    with pytest.raises(PackingError, match="cannot be written"):
        draw_simulation(job, tmp_path / "job.xyz")


def test_too_many_ranks(filmed_plan: tuple[Lake, Plan]) -> None:
    lake, plan = filmed_plan
    save_plan(lake, plan, "mix")
    result = CliRunner().invoke(
        build_app(), ["plan", "simulate", lake.uri, "mix", "--world-size", "3"]
    )
    assert isinstance(result.exception, HeadraceError)
    assert "so 1 to 2 ranks" in str(result.exception)
