"""Guarantee 2: who streams a plan, and how, changes no byte of it.

Every pack is streamed in several ways (world sizes, decode processes, byte bounds) and in a chain
of world sizes that hand over to each other; the digests over all fields of all batches are equal.
"""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from loader.proof.errors import ProofError
from loader.proof.planned import PlannedSteps
from loader.proof.program import PackReport, RankProgram, State
from loader.proof.progress import Progress, silent
from loader.proof.report import Difference, ProofResult


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to stream.

    Attributes:
        label: in words.
        program: the rank; its reports have digests and slots.
        world_sizes: of the job; of several each streams its share of the steps and hands its state
            over to the next.
    """

    label: str
    program: RankProgram
    world_sizes: tuple[int, ...]


def prove_elastic(
    variants: Sequence[Variant],
    planned: PlannedSteps,
    *,
    seconds: float | None = None,
    progress: Progress = silent,
) -> ProofResult:
    """Stream the steps in every way, in this process, and compare the bytes with the first way's.

    Args:
        variants: ways to stream; the first is the reference.
        planned: what the steps must consume.
        seconds: after which no further way is tried.
        progress: told of every way.

    Raises:
        ProofError: fewer than two ways, or a program that reports no digests or slots.
    """
    if len(variants) < 2:
        raise ProofError("elastic: two ways to stream are needed to compare them")
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    found: list[Difference] = []
    reference: dict[tuple[int, int], str] = {}
    tried = []
    for number, variant in enumerate(variants):
        if number > 1 and seconds is not None and time.monotonic() - begin > seconds:
            break
        stream = _Stream(variant=variant, planned=planned)
        found += stream.run()
        counts["packs"] += stream.packs
        counts["spans"] += stream.spans
        tried.append(variant.label)
        reference = reference or stream.digests
        found += _compare(stream.digests, reference, variant, variants[0])
        progress(number + 1, len(variants))
        if found:
            break
    counts["ways"] = len(tried)
    return ProofResult(
        proof="elastic",
        tried=", ".join(tried),
        first_step=planned.first_step,
        stop_step=planned.stop_step,
        counts=counts,
        seconds=time.monotonic() - begin,
        differences=tuple(found[:20]),
    )


@dataclass(kw_only=True)
class _Stream:
    """One way's stream over all ranks."""

    variant: Variant
    planned: PlannedSteps
    digests: dict[tuple[int, int], str] = field(default_factory=dict)
    packs: int = 0
    spans: int = 0

    def run(self) -> list[Difference]:
        """Stream; what differs from the plan."""
        worlds = self.variant.world_sizes
        steps = len(self.planned.steps)
        first, state = self.planned.first_step, None
        for number, world_size in enumerate(worlds):
            stop = self.planned.first_step + steps * (number + 1) // len(worlds)
            if stop == first:
                continue
            consumed: dict[int, list[PackReport]] = {}
            states: list[State | None] = []
            for rank in range(world_size):
                ended = self._rank(rank, world_size, state, (first, stop), consumed)
                if isinstance(ended, Difference):
                    return [ended]
                states.append(ended)
            if any(each != states[0] for each in states):
                what = f"{self.variant.label}: ranks saved different states: {states}"
                return [Difference(step=stop - 1, what=what)]
            if found := self.planned.compare(consumed):
                return found
            first, state = stop, states[0]
        return []

    def _rank(
        self,
        rank: int,
        world_size: int,
        state: State | None,
        steps: tuple[int, int],
        consumed: dict[int, list[PackReport]],
    ) -> State | Difference | None:
        """One rank's packs of the steps [first, stop); its state after them."""
        where = f"{self.variant.label}: rank {rank} of {world_size}"
        step, stop = steps
        program = self.variant.program
        with closing(program.start(rank, world_size, state, self.planned.first_step)) as reports:
            for report in reports:
                if report.slot is None or not report.digest:
                    raise ProofError(f"elastic: {where} reports no slot or no digest")
                if report.step != step:
                    return Difference(step=step, what=f"{where} gave a pack of step {report.step}")
                consumed.setdefault(step, []).append(report)
                self.packs += 1
                self.spans += len(report.spans)
                # Where a rank has no slot it gets an empty pack, which is nobody's.
                if report.slot < len(self.planned.steps[step - self.planned.first_step]):
                    self.digests[step, report.slot] = report.digest
                step += report.ends_step
                if step == stop:
                    return report.state
        return Difference(step=step, what=f"{where}: its stream ended")


def _compare(
    digests: dict[tuple[int, int], str],
    reference: dict[tuple[int, int], str],
    variant: Variant,
    first: Variant,
) -> list[Difference]:
    return [
        Difference(
            step=step,
            slot=slot,
            what=f"{variant.label}: other bytes than {first.label}"
            if (step, slot) in digests
            else f"{variant.label}: missing",
        )
        for (step, slot), digest in reference.items()
        if digests.get((step, slot)) != digest
    ]
