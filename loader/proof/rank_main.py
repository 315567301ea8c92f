"""A rank in a process of its own: `python -P -m loader.proof.rank_main`.

The first line on stdin says what to run and where it starts; then each line asks for one report.
Answers are lines on stdout: `{"report": ...}`, `{"end": true}`, `{"error": ...}`. What the program
itself prints goes to stderr.
"""

import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from typing import Any, Final

from loader.proof.program import RankProgram, Reports

_END_S: Final = 30.0

Asked = queue.SimpleQueue[str | None]


def main() -> None:
    """Serve the harness on stdin and stdout until it closes them."""
    out = os.dup(1)
    os.dup2(2, 1)
    setup: dict[str, Any] = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    program = RankProgram(**setup["program"])
    asked: Asked = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    try:
        reports = program.start(**setup["start"])
        while asked.get() is not None:
            _answer(out, _next(reports))
        reports.close()
    except BaseException as error:
        named = isinstance(error, Exception) and program.names(error)
        told = {"kind": type(error).__name__, "message": str(error), "named": named}
        _answer(out, {"error": told})
        if not named:
            raise


def _listen(asked: Asked) -> None:
    """Pass on what the harness asks for; when it is gone, end, whatever the program does."""
    for line in sys.stdin:
        asked.put(line)
    asked.put(None)
    threading.Event().wait(_END_S)
    os._exit(1)


def _next(reports: Reports) -> dict[str, Any]:
    report = next(reports, None)
    return {"end": True} if report is None else {"report": asdict(report)}


def _answer(out: int, message: dict[str, Any]) -> None:
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(out, line) :]


if __name__ == "__main__":
    main()
