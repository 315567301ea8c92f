"""Guarantee 1: whatever is killed, each planned occurrence contributes exactly once.

A job is its ranks, as processes in lock step, as synchronous training runs: a step counts once
every rank has consumed its last pack of it. Now and then a state is saved, as checkpoints are. The
job dies again and again, and starts anew from the last state with another world size; what had been
consumed since that state is consumed again, as the weights that learned of it are lost too. In the
end the consumed samples of each step on the surviving trajectory must be the plan's.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from loader.proof.errors import ProofError
from loader.proof.planned import PlannedSteps
from loader.proof.program import PackReport, RankProgram, State
from loader.proof.progress import Progress, silent
from loader.proof.rank_process import RankEnded, RankProcess
from loader.proof.report import Difference, ProofResult

Kill = Literal["job", "rank", "worker"]
KILLS: Final[tuple[Kill, ...]] = get_args(Kill)
"""All ranks at once; one rank; what the ranks have started, such as decode processes."""

_MOST_STEPS_UNSAVED: Final = 3


def prove_exactly_once(
    program: RankProgram,
    planned: PlannedSteps,
    *,
    world_sizes: Sequence[int],
    num_kills: int = 4,
    kills: Sequence[Kill] = KILLS,
    seed: int = 0,
    seconds: float | None = None,
    patience_s: float = 120.0,
    progress: Progress = silent,
) -> ProofResult:
    """Kill a job at random points, restart it each time, and compare what survived with the plan.

    Args:
        program: the rank.
        planned: what the steps must consume.
        world_sizes: of the job's lives, in turns.
        num_kills: how often it dies; each time it resumes, so this is the depth of resumes too.
        kills: what is killed, in turns.
        seed: of the points.
        seconds: after which nothing more is killed, and no step is begun that was not begun before.
        patience_s: how long a rank may take over one pack.
        progress: told of every step.

    Raises:
        ProofError: nothing to try.
    """
    if not world_sizes or min(world_sizes) < 1 or not kills or num_kills < 0:
        raise ProofError("exactly once: name world sizes of at least 1, and what to kill")
    begin = time.monotonic()
    job = _Job(
        program=program,
        planned=planned,
        chance=random.Random(seed),  # noqa: S311 - not a secret
        deadline=None if seconds is None else begin + seconds,
        patience_s=patience_s,
        progress=progress,
    )
    found = planned.repeated()
    for life in range(num_kills + 1):
        last = life == num_kills or job.out_of_time
        kill = None if last else kills[life % len(kills)]
        found += job.live(world_sizes[life % len(world_sizes)], kill, lives_left=num_kills - life)
        if found or last:
            break
    spans = sum(len(report.spans) for packs in job.surviving.values() for report in packs)
    return ProofResult(
        proof="exactly once",
        tried=f"{job.counts['kills']} kills, {job.counts['resumes']} resumes, world sizes"
        f" {', '.join(map(str, job.worlds))}",
        first_step=planned.first_step,
        stop_step=planned.first_step + len(job.surviving),
        counts={**job.counts, "spans": spans},
        seconds=time.monotonic() - begin,
        differences=tuple(found),
        outcome="" if job.counts["kills"] == num_kills else "time was too short for more kills",
        unproved="" if job.counts["kills"] or not num_kills else "time was too short for a kill",
    )


@dataclass(kw_only=True)
class _Job:
    """A training job over all its lives."""

    program: RankProgram
    planned: PlannedSteps
    chance: random.Random
    deadline: float | None
    patience_s: float
    progress: Progress
    counts: Counter[str] = field(default_factory=Counter)
    worlds: list[int] = field(default_factory=list)
    surviving: dict[int, list[PackReport]] = field(default_factory=dict)
    saved_step: int = -1
    saved_state: State | None = None
    furthest: int = 0

    def goes_on(self, step: int) -> bool:
        """Whether a step is begun: one at least, and what was consumed before it was lost."""
        if not self.out_of_time:
            self.furthest = max(self.furthest, step + 1)
        return step < min(self.planned.stop_step, max(self.furthest, self.planned.first_step + 1))

    @property
    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def live(self, world_size: int, kill: Kill | None, lives_left: int) -> list[Difference]:
        """One life: from the saved state until it is killed, or to the end of the range.

        Args:
            world_size: of this life.
            kill: what is killed; None to let it live to the end.
            lives_left: how many lives it may be killed in, this one included.
        """
        begin = max(self.saved_step, self.planned.first_step)
        for step in [step for step in self.surviving if step >= begin]:
            self.counts["repeated_packs"] += len(self.surviving.pop(step))
        self.worlds.append(world_size)
        if self.saved_state is not None:
            self.counts["resumes"] += 1
        with ExitStack() as stack:
            ranks = [
                stack.enter_context(
                    RankProcess(
                        self.program,
                        rank,
                        world_size,
                        state=self.saved_state,
                        first_step=self.planned.first_step,
                        patience_s=self.patience_s,
                    )
                )
                for rank in range(world_size)
            ]
            return _Life(job=self, ranks=ranks, kill=kill, lives_left=lives_left).run(begin)


@dataclass(kw_only=True)
class _Life:
    """One life of a job."""

    job: _Job
    ranks: list[RankProcess]
    kill: Kill | None
    lives_left: int
    reports: int = 0
    doomed_at: int | None = None
    last_moment: int = 0
    orphaned: bool = False

    def run(self, step: int) -> list[Difference]:
        """Go through the steps from `step` on."""
        job, planned, chance = self.job, self.job.planned, self.job.chance
        if self.kill is not None:
            left = planned.steps[step - planned.first_step :]
            packs = sum(map(len, left))
            self.last_moment = packs - len(left[-1])
            # On average the lives share what is left; some die before their first pack.
            self.doomed_at = self._draw(min(self.last_moment, 2 * packs // self.lives_left))
        unsaved = chance.randrange(_MOST_STEPS_UNSAVED)
        while job.goes_on(step):
            packs_of_step: list[PackReport] = []
            done = self._step(step, packs_of_step)
            if not isinstance(done, dict):
                job.counts["repeated_packs"] += len(packs_of_step)
                return [] if done is None else [done]
            job.surviving[step] = packs_of_step
            if wrong := planned.compare({step: packs_of_step}):
                return wrong
            step += 1
            states = list(done.values())
            if any(state != states[0] for state in states):
                return [Difference(step=step - 1, what=f"ranks saved different states: {states}")]
            if unsaved == 0 or step == planned.stop_step:
                job.saved_step, job.saved_state = step, states[0]
                unsaved = chance.randrange(_MOST_STEPS_UNSAVED)
            else:
                unsaved -= 1
            job.progress(step - planned.first_step, len(planned.steps))
        return []

    def _step(self, step: int, packs: list[PackReport]) -> dict[int, State] | Difference | None:
        """One step: the ranks' states after it; None where the job died in it.

        The ranks go on in any order, so that some have consumed more of the step than others.
        """
        states: dict[int, State] = {}
        while len(states) < len(self.ranks):
            dead = self._dies()
            if dead:
                return dead if isinstance(dead, Difference) else None
            rank = self.job.chance.choice([r for r in range(len(self.ranks)) if r not in states])
            report = self.ranks[rank].report()
            if isinstance(report, RankEnded):
                if self.orphaned and not report.at_end:
                    return None  # without its decode process it may give up, saying so
                return Difference(step=step, what=f"rank {rank} of {len(self.ranks)}: {report.why}")
            self.reports += 1
            self.job.counts["packs"] += 1
            if report.step != step:
                return Difference(
                    step=step,
                    slot=report.slot,
                    what=f"rank {rank} of {len(self.ranks)} gave a pack of step {report.step}",
                )
            packs.append(report)
            if report.ends_step:
                if report.state is None:
                    return Difference(step=step, what=f"rank {rank} has no state after the step")
                states[rank] = report.state
            elif report.state is not None and self.job.chance.random() < 0.5:
                # A state that is saved in the middle of a step resumes at its begin.
                self.job.saved_step, self.job.saved_state = step, report.state
                self.job.counts["states_within_steps"] += 1
        return states

    def _draw(self, before: int) -> int:
        """After how many reports to die, less than `before`."""
        return self.job.chance.randrange(self.reports, max(self.reports + 1, before))

    def _dies(self) -> Difference | bool:
        """Kill, where the time has come; whether the job is over."""
        if self.doomed_at is None or self.reports < self.doomed_at:
            return False
        job, chance = self.job, self.job.chance
        if self.kill == "worker":
            self.kill = "job"
            if victims := sum(rank.kill_children() for rank in self.ranks):
                job.counts["kills"] += 1
                job.counts["killed_workers"] += victims
                self.orphaned = True
                # What had been handed over may still come.
                self.doomed_at = self._draw(self.last_moment)
                return False
        if not self.orphaned:
            job.counts["kills"] += 1
        for rank in self.ranks:  # some die in the middle of their next pack
            if chance.random() < 0.5:
                rank.ask()
        victim = chance.choice(self.ranks) if self.kill == "rank" else None
        for rank in (victim,) if victim else self.ranks:
            rank.kill()
            job.counts["killed_ranks"] += 1
        for number, rank in enumerate(self.ranks):
            if victim and rank is not victim and not rank.end():
                return Difference(what=f"rank {number} does not end when another was killed")
        return True
