"""Guarantee 1: each planned occurrence contributes exactly once, whatever is killed.

Ranks run as processes in lock step, as synchronous training does: a step counts once every rank has
reported it, and the position saved then is what a restart begins at. At a random point all of them
are killed (SIGKILL); what some ranks consumed of an unfinished step is lost with them. On the
surviving trajectory the consumed (epoch, span id) must equal the plan, each once.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_REPOSITORY = Path(__file__).parents[2]

# One line out per step; one line in lets the next step begin (the all-reduce of a real job).
_RANK = """
import json, sys
from loader import PackLoader
uri, plan, rank, world_size, process, state = sys.argv[1:]
loader = PackLoader(uri, plan, int(rank), int(world_size), process=process, framework="numpy",
                    buffer_bytes=1 << 20)
if state != "null":
    loader.load_state_dict(json.loads(state))
consumed = []
for batch in loader:
    spans, times = batch.span_ids[: batch.num_spans], batch.occurrence_ids[: batch.num_spans]
    consumed += [[batch.epoch, int(s), int(k)] for s, k in zip(spans, times, strict=True)]
    if loader.next_step == batch.step + 1:
        print(json.dumps([batch.step, consumed, loader.state_dict()]), flush=True)
        consumed = []
        sys.stdin.readline()
"""


class Job:
    """All ranks of one life of a job."""

    def __init__(
        self, stack: ExitStack, lake: Lake, plan: str, world_size: int, process: str, state: Any
    ) -> None:
        self.ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        *(sys.executable, "-c", _RANK, lake.uri),
                        *(plan, str(rank), str(world_size), process, json.dumps(state)),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=_REPOSITORY,
                )
            )
            for rank in range(world_size)
        ]

    def report(self, rank: int) -> list[Any]:
        """The next report of a rank: step, consumed (epoch, span id, occurrence), state."""
        stdout = self.ranks[rank].stdout
        assert stdout
        report: list[Any] = json.loads(stdout.readline())
        return report

    def go_on(self) -> None:
        for rank in self.ranks:
            assert rank.stdin
            rank.stdin.write("\n")
            rank.stdin.flush()

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.communicate()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("once")))


# Equal shares of all episodes repeat spans of the short ones and omit spans of the long ones.
_MIXTURES: Mapping[str, Mixture | None] = {
    "plain": None,
    "mixed": Mixture(per="episode"),
}


@pytest.fixture(scope="module")
def plans(lake: Lake) -> dict[str, Plan]:
    made = {
        name: scenes.scene_plan(lake, slots_per_step=3, budget_tokens=384, mixture=mixture)
        for name, mixture in _MIXTURES.items()
    }
    for name, plan in made.items():
        save_plan(lake, plan, name)
    return made


@pytest.mark.parametrize(
    ("name", "process", "worlds", "seed"),
    [
        ("plain", "child", (1, 1, 1, 1), 0),
        ("plain", "child", (2, 3, 1, 2), 1),
        ("plain", "inline", (3, 1, 2, 3, 2), 2),
        ("mixed", "inline", (2, 3, 1, 2), 3),
    ],
)
def test_each_planned_occurrence_is_consumed_once(
    lake: Lake,
    plans: dict[str, Plan],
    name: str,
    process: str,
    worlds: tuple[int, ...],
    seed: int,
) -> None:
    plan = plans[name]
    chance = random.Random(seed)
    state: Any = None
    surviving: dict[int, list[tuple[int, int, int]]] = {}
    lost = 0
    for life, world_size in enumerate(worlds):
        left = plan.num_steps - len(surviving)
        # How many reports this life lives to give; the step of the last one is lost.
        allowed = chance.randrange(0, max(1, left * world_size * 2 // 3))
        last_life = life == len(worlds) - 1
        with ExitStack() as stack:
            job = Job(stack, lake, name, world_size, process, state)
            seen = 0
            while len(surviving) < plan.num_steps and (last_life or seen < allowed):
                reports = []
                for rank in range(world_size):
                    reports.append(job.report(rank))
                    seen += 1
                    if seen == allowed and not last_life:
                        break
                if seen == allowed and not last_life:
                    lost += len(reports)
                    break
                steps = [report[0] for report in reports]
                states = [report[2] for report in reports]
                assert steps == [len(surviving)] * world_size
                assert states == [states[0]] * world_size
                state = states[0]
                surviving[steps[0]] = [
                    (epoch, span, time) for report in reports for epoch, span, time in report[1]
                ]
                job.go_on()
            job.kill()
    planned = Counter(
        (row["epoch"], span, time)
        for row in plan.packs.to_pylist()
        for span, time in zip(row["span_id"], row["occurrence"], strict=True)
    )
    assert Counter(item for step in surviving.values() for item in step) == planned
    assert set(planned.values()) == {1}
    repeats = any(time for _, _, time in planned)
    everything = {(epoch, span) for epoch, span, _ in planned}
    mixed = name == "mixed"
    assert repeats == mixed
    assert (len(everything) < plan.header.num_spans * plan.header.epochs) == mixed
    by_step: dict[int, set[int]] = {}
    for step, _, spans in scenes.planned_spans(plan):
        by_step.setdefault(step, set()).update(spans)
    assert {step: {span for _, span, _ in items} for step, items in surviving.items()} == by_step
    assert lost  # some of what was consumed did not survive
