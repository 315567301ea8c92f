"""What another process of ours is doing: asked for by a signal, told on its stderr."""

import faulthandler
import re
import signal
from pathlib import Path
from typing import Final

# Ignored where nobody listens, as in a process that is still starting.
STACKS_SIGNAL: Final = signal.SIGURG
_CALL: Final = re.compile(r'^  File "(?:.*/)?([^/"]+)", line (\d+) in (.+)$')
_ASKED: Final = "Current thread"
_CALLS: Final = 4


def tell_stacks_when_asked() -> None:
    """From now on write the stacks of all threads to stderr at each `STACKS_SIGNAL`.

    The handler takes no lock, so it tells them of a process that hangs in C code too.
    """
    faulthandler.register(STACKS_SIGNAL, all_threads=True)


def innermost_calls(told: str) -> str:
    """The innermost calls of the main thread, in a line; empty where none were told.

    Args:
        told: what a process wrote when it was asked.
    """
    threads = told.rpartition(_ASKED)[2] if _ASKED in told else told.rpartition("Thread 0x")[2]
    calls: list[str] = []
    for line in threads.splitlines():
        if call := _CALL.match(line):
            calls.append(f"{call[3]} ({call[1]}:{call[2]})")
        elif calls:
            break
    return " of ".join(calls[:_CALLS])


def process_state(pid: int) -> str:
    """How the kernel calls its state, such as `T (stopped)`; `unknown` where it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "unknown"
    found = re.search(r"^State:\s*(.+)$", status, re.MULTILINE)
    return found[1] if found else "unknown"
