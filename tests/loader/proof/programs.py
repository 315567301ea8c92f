"""A loader of lists, whole or broken in one way, as a rank program."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any

from lake.errors import LakeError
from loader.proof.program import Occurrence, PackReport, RankProgram, RankSetup, Reports

SLOTS = 4


def packs_of(step: int) -> list[list[Occurrence]]:
    """The packs of a step: `SLOTS` of two spans."""
    return [[(step // 8, 2 * (SLOTS * step + s) + k, 0) for k in range(2)] for s in range(SLOTS)]


def program(fault: str = "", **arguments: Any) -> RankProgram:
    """Streams 12 steps of `packs_of`; `fault` says how it is broken."""
    return RankProgram(
        target="tests.loader.proof.programs:rank", arguments={"fault": fault, **arguments}
    )


def rank(setup: RankSetup) -> Reports:
    """The rank's packs."""
    fault, wide = setup.arguments["fault"], setup.world_size
    steps = [packs_of(step) for step in range(setup.arguments.get("steps", 12))]
    begin = setup.first_step if setup.state is None else int(setup.state["next_step"])
    resumed = setup.state is not None
    if resumed and fault == "skips after resume":
        begin += 1
    if fault == "has a child":
        _start_a_child()
    micros = -(-SLOTS // wide)
    for step in range(begin, len(steps)):
        for micro in range(micros):
            slot = setup.rank + micro * wide
            spans = list(steps[step][slot]) if slot < SLOTS else []
            last = micro == micros - 1
            if slot == 1 and step == 5:
                spans = _broken(fault, spans, setup)
            early = fault == "moves too early" and micro == 0
            state = {"next_step": step + (last or early)}
            if fault == "state of its own":
                state["rank"] = setup.rank
            other = fault == "bytes of the world size" and wide == 2 and (step, slot) == (3, 0)
            yield PackReport(
                step=step + (fault == "names another step" and step == 4),
                slot=slot,
                spans=tuple(spans),
                ends_step=last,
                state=state,
                digest=f"{step} {slot}{' other' * other}{setup.arguments.get('bytes', '')}",
                counts={"retries": step, "injected": int(fault != "nothing")},
            )


def _broken(fault: str, spans: list[Any], setup: RankSetup) -> list[Any]:
    match fault:
        case "skips a span":
            return spans[1:]
        case "repeats a span":
            return [*spans, spans[0]]
        case "repeats a span after resume" if setup.state is not None:
            return [*spans, spans[0]]
        case "swaps spans":
            return spans[::-1]
        case "raises":
            raise ValueError("no reason")
        case "gives up":
            raise LakeError("the store did not answer")
        case "exits":
            os._exit(3)
        case "hangs":
            threading.Event().wait()
    return spans


def _start_a_child() -> None:
    """A process whose end is ours, as of a decode process: an error that has a name."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def follow() -> None:
        process.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()
