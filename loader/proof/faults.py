"""Guarantee 3: faults below the loader change no delivered byte, or end in a named error.

The same steps are streamed without faults and with them. A stream that gives up must do so with
one of the loader's own errors; then it is resumed from its last state without faults, as its user
would, and the rest must be right.
"""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing

from loader.proof.errors import ProofError
from loader.proof.planned import PlannedSteps
from loader.proof.program import PackReport, RankProgram, State
from loader.proof.rank_process import RankEnded, RankProcess
from loader.proof.report import Difference, ProofResult

Packs = Mapping[tuple[int, int], str]
"""(step, number of the pack in its step) -> digest."""


def clean_packs(program: RankProgram, planned: PlannedSteps) -> dict[tuple[int, int], str]:
    """Digests of the steps' packs, streamed by one rank in this process.

    Raises:
        ProofError: the program reports no digests, or does not stream what is planned.
    """
    found: dict[tuple[int, int], str] = {}
    consumed: dict[int, list[PackReport]] = {}
    step = planned.first_step
    with closing(program.start(0, 1, None, planned.first_step)) as reports:
        for report in reports:
            if not report.digest:
                raise ProofError("faults: the program reports no digests")
            packs = consumed.setdefault(report.step, [])
            found[report.step, len(packs)] = report.digest
            packs.append(report)
            step += report.ends_step
            if step == planned.stop_step:
                break
    if differences := planned.compare(consumed):
        raise ProofError(f"faults: without faults already, {differences[0]}")
    return found


def prove_under_faults(
    faulty: RankProgram,
    clean: RankProgram,
    packs: Packs,
    planned: PlannedSteps,
    *,
    what: str,
    patience_s: float = 120.0,
) -> ProofResult:
    """Stream with faults in a process of its own, and compare with what came without.

    Args:
        faulty: streams through faults.
        clean: streams the same without.
        packs: what it gave, see `clean_packs`.
        planned: the steps.
        what: the faults, in words.
        patience_s: how long one pack may take, to be data or an error.
    """
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    found: list[Difference] = []
    outcome = "the same bytes"
    state: State | None = None
    told: Mapping[str, int] = {}
    step, number = planned.first_step, 0
    with RankProcess(faulty, 0, 1, first_step=planned.first_step, patience_s=patience_s) as rank:
        while step < planned.stop_step and not found:
            report = rank.report()
            if isinstance(report, RankEnded):
                outcome = report.why
                if not report.named:
                    found.append(Difference(step=step, what=f"no named error: {report.why}"))
                break
            counts["packs"] += 1
            counts["spans"] += len(report.spans)
            told = report.counts
            found += _differences(report, packs, step, number)
            step, number = (step + 1, 0) if report.ends_step else (step, number + 1)
            state = report.state if report.ends_step else state
    if not found and step < planned.stop_step:
        counts["resumes"] += 1
        found += _resume(clean, packs, planned, (step, state))
    return ProofResult(
        proof="faults",
        tried=what,
        first_step=planned.first_step,
        stop_step=planned.stop_step,
        counts={**told, **counts},
        seconds=time.monotonic() - begin,
        differences=tuple(found),
        outcome=outcome,
        unproved="no fault was met" if told.get("injected") == 0 else "",
    )


def _resume(
    clean: RankProgram, packs: Packs, planned: PlannedSteps, stopped: tuple[int, State | None]
) -> list[Difference]:
    """Go on without faults at the begin of the step in which the stream gave up."""
    (step, state), number = stopped, 0
    with closing(clean.start(0, 1, state, planned.first_step)) as reports:
        for report in reports:
            if found := _differences(report, packs, step, number):
                return found
            step, number = (step + 1, 0) if report.ends_step else (step, number + 1)
            if step == planned.stop_step:
                return []
    return [Difference(step=step, what="resumed after the error, the stream ended too early")]


def _differences(report: PackReport, packs: Packs, step: int, number: int) -> list[Difference]:
    if report.step != step:
        return [Difference(step=step, what=f"a pack of step {report.step} came")]
    if report.digest != packs.get((step, number)):
        return [Difference(step=step, slot=report.slot, what="other bytes than without faults")]
    return []
