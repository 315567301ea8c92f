"""What a training job of some ranks would see of a plan: loads, reads, and waiting for data.

Loads are counted from the plan; reads are those of `packing.storage`; time is that of
`packing.job_time`, where the machine's speed is given.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.cost import CostModel
from packing.job_time import JobSpeed, JobTime, job_time
from packing.plan import Plan
from packing.spans import Int64s
from packing.storage.facts import StorageFacts
from packing.storage.model import MOST_PICTURES, Replay, replay
from packing.storage.use import Spread, StorageUse


@dataclass(frozen=True, kw_only=True)
class EpochLoad:
    """One epoch: steps, spans and tokens, and how its last step is filled.

    `last_step_packs` of the step's slots hold a span; `last_step_idle_ranks` have none that does.
    """

    epoch: int
    steps: int
    spans: int
    tokens: int
    last_step_packs: int
    last_step_idle_ranks: int


@dataclass(frozen=True, kw_only=True)
class JobSimulation:
    """What a job would see.

    Attributes:
        world_size: ranks.
        steps: of the plan.
        packs_per_rank: micro-batches of a rank and step.
        tokens_of_rank: per rank and step.
        tokens_max_over_mean: sum over all steps of the fullest rank's tokens, over the mean rank's.
        cost_max_over_mean: likewise by the cost model.
        worst_step, worst_max_over_mean: the step whose ranks differ most in cost, of those in which
            every rank has spans.
        idle_rank_steps: steps of a rank in which it has no span.
        epochs: one after the other.
        storage: reads and memory.
        time: None where no step time was given.
        max_cost, mean_cost: float64 [steps], the costliest and the mean rank's, in units of the
            plan's mean.
        replayed: what was read, for pictures of it.
    """

    world_size: int
    steps: int
    packs_per_rank: int
    tokens_of_rank: Spread
    tokens_max_over_mean: float
    cost_max_over_mean: float
    worst_step: int
    worst_max_over_mean: float
    idle_rank_steps: int
    epochs: tuple[EpochLoad, ...]
    storage: StorageUse
    time: JobTime | None
    max_cost: NDArray[np.float64]
    mean_cost: NDArray[np.float64]
    replayed: Replay


def simulate_plan(
    plan: Plan,
    facts: StorageFacts,
    world_size: int,
    *,
    speed: JobSpeed | None = None,
    cost: CostModel | None = None,
    most_pictures: int = MOST_PICTURES,
) -> JobSimulation:
    """Run a job on paper.

    Args:
        plan: the plan.
        facts: of its episodes (`packing.storage.facts.read_storage_facts`).
        world_size: ranks.
        speed: of the machine.
        cost: in place of that by which the plan was balanced.
        most_pictures: see `packing.storage.model.replay`.

    Raises:
        PlanError: the plan has fewer slots than ranks.
    """
    speed = speed or JobSpeed()
    replayed = replay(
        plan,
        facts,
        world_size,
        num_workers=speed.num_workers,
        buffer_bytes=speed.buffer_bytes,
        most_pictures=most_pictures,
    )
    spans = pc.list_value_length(plan.packs["span_id"]).to_numpy().astype(np.int64)
    tokens = _per_rank(plan.packs["tokens"].to_numpy(), plan, world_size)
    costs = _per_rank(_costs(plan, spans, cost), plan, world_size).astype(np.float64)
    filled = _per_rank(spans > 0, plan, world_size)
    busy = (filled > 0).all(axis=1)
    unit = max(float(costs.mean()), 1e-9)
    mean, most = costs.mean(axis=1) / unit, costs.max(axis=1) / unit
    ratio = np.where(busy, most / np.maximum(mean, 1e-9), 0.0)
    return JobSimulation(
        world_size=world_size,
        steps=plan.num_steps,
        packs_per_rank=-(-plan.header.slots_per_step // world_size),
        tokens_of_rank=Spread.of(tokens.ravel()),
        tokens_max_over_mean=_max_over_mean(tokens.max(axis=1), tokens.mean(axis=1)),
        cost_max_over_mean=_max_over_mean(most, mean),
        worst_step=int(ratio.argmax()),
        worst_max_over_mean=float(ratio.max(initial=0.0)) or 1.0,
        idle_rank_steps=int((filled == 0).sum()),
        epochs=_epochs(plan, spans, filled),
        storage=replayed.use(),
        time=None if speed.step_ms is None else job_time(replayed, facts, most, speed),
        max_cost=most,
        mean_cost=mean,
        replayed=replayed,
    )


def _per_rank(values: NDArray[np.generic], plan: Plan, world_size: int) -> Int64s:
    """int64 [steps, ranks]: sums over the slots of each rank."""
    table = values.astype(np.int64).reshape(-1, plan.header.slots_per_step)
    lacking = -table.shape[1] % world_size
    table = np.pad(table, ((0, 0), (0, lacking)))
    return np.asarray(table.reshape(len(table), -1, world_size).sum(axis=1))


def _costs(plan: Plan, spans: Int64s, cost: CostModel | None) -> Int64s:
    """int64 [slots of all steps]: by the model given, or by that of each segment."""
    ends = np.concatenate([[0], np.cumsum(spans)])
    images = np.concatenate([[0], np.cumsum(pc.list_flatten(plan.packs["images"]).to_numpy())])
    tokens, squares = (plan.packs[name].to_numpy() for name in ("tokens", "sum_sq"))
    costs = np.zeros(len(spans), np.int64)
    for segment in plan.header.segments:
        begin = segment.first_step * plan.header.slots_per_step
        ours = slice(begin, begin + segment.num_steps * plan.header.slots_per_step)
        model = cost or segment.settings.cost
        costs[ours] = model.units(
            tokens[ours], squares[ours], np.diff(images[ends])[ours], spans[ours]
        )
    return costs


def _max_over_mean(most: NDArray[np.generic], mean: NDArray[np.generic]) -> float:
    return float(most.sum() / mean.sum()) if mean.sum() else 1.0


def _epochs(plan: Plan, spans: Int64s, filled: Int64s) -> tuple[EpochLoad, ...]:
    slots = plan.header.slots_per_step
    epoch = plan.packs["epoch"].to_numpy()[::slots]
    per_step = spans.reshape(-1, slots)
    tokens = plan.packs["tokens"].to_numpy().astype(np.int64).reshape(-1, slots).sum(axis=1)
    loads = []
    for number in np.unique(epoch).tolist():
        steps = np.flatnonzero(epoch == number)
        loads.append(
            EpochLoad(
                epoch=number,
                steps=len(steps),
                spans=int(per_step[steps].sum()),
                tokens=int(tokens[steps].sum()),
                last_step_packs=int((per_step[steps[-1]] > 0).sum()),
                last_step_idle_ranks=int((filled[steps[-1]] == 0).sum()),
            )
        )
    return tuple(loads)
