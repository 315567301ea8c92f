"""Guarantee 1: each planned occurrence contributes exactly once, whatever is killed.

The public harness does it (`loader/proof/`); here it meets the loader in the ways it is used.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from loader.materialized.materialize import materialize
from loader.proof.exactly_once import Kill, prove_exactly_once
from loader.proof.pack_loader_ranks import PackLoaderRanks, make_loader, reports
from loader.proof.planned import PlannedSteps
from loader.proof.program import RankSetup, Reports
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_SLOTS = 3

# Equal shares of all episodes repeat spans of the short ones and omit spans of the long ones.
_MIXTURES: Mapping[str, Mixture | None] = {"plain": None, "mixed": Mixture(per="episode")}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("once")))


@pytest.fixture(scope="module")
def plans(lake: Lake) -> dict[str, Plan]:
    made = {
        name: scenes.scene_plan(lake, slots_per_step=_SLOTS, budget_tokens=384, mixture=mixture)
        for name, mixture in _MIXTURES.items()
    }
    save_plan(lake, made["plain"], "plain")
    materialize(lake, made["plain"], workers=1)
    return made


@pytest.mark.parametrize(
    ("name", "options", "worlds", "kills", "num_kills", "seed"),
    [
        ("plain", {}, (1, 2), ("worker", "rank", "job"), 3, 0),
        # Of one or two ranks each has several packs per step: killed in it, it begins anew.
        ("plain", {"process": "inline"}, (3, 1, 2), ("job", "rank"), 4, 2),
        ("mixed", {"process": "inline"}, (2, 1), ("job",), 3, 3),
        ("plain", {"process": "inline", "materialized": True}, (2, 1), ("job",), 3, 5),
    ],
)
def test_each_planned_occurrence_is_consumed_once(
    lake: Lake,
    plans: dict[str, Plan],
    name: str,
    options: dict[str, Any],
    worlds: tuple[int, ...],
    kills: tuple[Kill, ...],
    num_kills: int,
    seed: int,
) -> None:
    plan = plans[name]
    planned = PlannedSteps.of_plan(plan)
    with PackLoaderRanks(lake, plan) as ranks:
        result = prove_exactly_once(
            ranks.program(buffer_bytes=1 << 21, **options),
            planned,
            world_sizes=worlds,
            num_kills=num_kills,
            kills=kills,
            seed=seed,
        )
    assert result.passed, result.differences
    assert (result.first_step, result.stop_step) == (0, plan.num_steps)
    assert result.counts["kills"] == num_kills
    assert result.counts["spans"] == sum(len(spans) for _, _, spans in scenes.planned_spans(plan))
    if "process" in options:  # when a decode process dies is not ours to choose
        assert result.counts["resumes"] >= num_kills - 1
        assert result.counts["repeated_packs"] > 0


def test_what_is_planned_is_what_was_asked_for(plans: dict[str, Plan]) -> None:
    """Every span once in each epoch, or, in a mixture, some several times and others not at all."""
    for name, plan in plans.items():
        planned = PlannedSteps.of_plan(plan)
        assert planned.whole
        assert not planned.repeated()
        items = [item for step in planned.steps for pack in step for item in pack]
        spans = {(epoch, span) for epoch, span, _ in items}
        everything = plan.header.num_spans * plan.header.epochs
        repeats = any(time for _, _, time in items)
        assert repeats == (name == "mixed")
        assert (len(spans) < everything) == (name == "mixed")


# Trainers that break the rules, so that a proof that always passes would not pass here.


def saves_too_early(setup: RankSetup) -> Reports:
    """Saves behind the step while the step still has packs to come."""
    for report in _reports(setup):
        state = dict(report.state or {})
        state["next_step"] = report.step + 1
        yield type(report)(**{**vars(report), "state": state})


def forgets_to_resume(setup: RankSetup) -> Reports:
    """Starts one step too late after a restart."""
    if setup.state is None:
        yield from _reports(setup)
        return
    state = dict(setup.state)
    state["next_step"] = min(state["next_step"] + 1, setup.arguments["num_steps"])
    yield from _reports(RankSetup(**{**vars(setup), "state": state}))


def takes_every_pack(setup: RankSetup) -> Reports:
    """Ignores its rank: every rank streams all packs of the plan."""
    yield from _reports(RankSetup(**{**vars(setup), "rank": 0, "world_size": 1}))


def _reports(setup: RankSetup) -> Iterator[Any]:
    from lake import open_lake

    with make_loader(setup, open_lake(setup.arguments["lake"])) as loader:
        yield from reports(setup, loader)


@pytest.mark.parametrize("trainer", ["saves_too_early", "forgets_to_resume", "takes_every_pack"])
def test_a_trainer_that_breaks_the_rules_is_caught(
    lake: Lake, plans: dict[str, Plan], trainer: str
) -> None:
    plan = plans["plain"]
    target = f"tests.guarantees.test_exactly_once:{trainer}"
    with PackLoaderRanks(lake, plan, target=target) as ranks:
        result = prove_exactly_once(
            ranks.program(process="inline", extra={"num_steps": plan.num_steps}),
            PlannedSteps.of_plan(plan),
            world_sizes=(2,),
            num_kills=1,
            kills=("job",),
            seed=1,
        )
    assert not result.passed
