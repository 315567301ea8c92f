"""What each step must consume, read from the plan itself and not through the loader."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from loader.proof.errors import ProofError
from loader.proof.program import Occurrence, PackReport
from loader.proof.report import Difference
from packing.stored_plan import AnyPlan

_MOST_DIFFERENCES: Final = 20


@dataclass(frozen=True, kw_only=True)
class PlannedSteps:
    """The samples of a range of steps.

    Attributes:
        first_step: of the range.
        steps: per step its packs, per pack its samples in order.
        whole: whether the range is the whole plan.
    """

    first_step: int
    steps: Sequence[Sequence[Sequence[Occurrence]]]
    whole: bool = False

    @classmethod
    def of_plan(cls, plan: AnyPlan, first_step: int = 0, num_steps: int | None = None) -> Self:
        """Of a plan's rows, at most `num_steps` of them.

        Raises:
            ProofError: the plan has no such step.
        """
        stop = plan.num_steps if num_steps is None else min(first_step + num_steps, plan.num_steps)
        if not 0 <= first_step < stop:
            raise ProofError(
                f"steps {first_step} to {stop} of plan {plan.plan_hash[:16]}: it has"
                f" {plan.num_steps}"
            )
        slots = plan.header.slots_per_step
        rows = plan.take_packs(range(first_step * slots, stop * slots))
        packs = [
            [(epoch, span, time) for span, time in zip(spans, times, strict=True)]
            for epoch, spans, times in zip(
                rows["epoch"].to_pylist(),
                rows["span_id"].to_pylist(),
                rows["occurrence"].to_pylist(),
                strict=True,
            )
        ]
        return cls(
            first_step=first_step,
            steps=[packs[at : at + slots] for at in range(0, len(packs), slots)],
            whole=first_step == 0 and stop == plan.num_steps,
        )

    @property
    def stop_step(self) -> int:
        """One past the last step."""
        return self.first_step + len(self.steps)

    def repeated(self) -> list[Difference]:
        """Samples that the plan itself names twice."""
        times = Counter(item for step in self.steps for pack in step for item in pack)
        return [
            Difference(
                span_id=span, what=f"planned {count} times as occurrence {time} of epoch {epoch}"
            )
            for (epoch, span, time), count in times.items()
            if count > 1
        ][:_MOST_DIFFERENCES]

    def compare(self, consumed: Mapping[int, Iterable[PackReport]]) -> list[Difference]:
        """How the surviving trajectory differs: step -> the packs that all ranks consumed of it."""
        found: list[Difference] = []
        for step, packs in consumed.items():
            found += self._compare_step(step, list(packs))
        return found[:_MOST_DIFFERENCES]

    def _compare_step(self, step: int, reports: list[PackReport]) -> list[Difference]:
        if not self.first_step <= step < self.stop_step:
            return [Difference(step=step, what="the plan has no such step in this range")]
        packs = self.steps[step - self.first_step]
        due = Counter(item for pack in packs for item in pack)
        had = Counter(item for report in reports for item in report.spans)
        found = [
            Difference(
                step=step,
                span_id=span,
                what=f"epoch {epoch}, occurrence {time}: planned {due[epoch, span, time]} times,"
                f" consumed {had[epoch, span, time]} times",
            )
            for epoch, span, time in sorted(due.keys() | had.keys())
            if due[epoch, span, time] != had[epoch, span, time]
        ]
        slots = [report.slot for report in reports if report.slot is not None]
        if found or not slots:
            return found
        for slot, count in Counter(slots).items():
            if count > 1:
                found.append(Difference(step=step, slot=slot, what=f"consumed {count} times"))
        for report in reports:
            if report.slot is None:
                continue
            wanted = packs[report.slot] if report.slot < len(packs) else ()
            if list(report.spans) != list(wanted):
                found.append(
                    Difference(step=step, slot=report.slot, what="holds other spans than planned")
                )
        return found
