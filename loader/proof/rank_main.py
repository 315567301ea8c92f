"""A rank in a process of its own: `python -P -m loader.proof.rank_main`.

The first line on stdin says what to run and where it starts; then each line asks for one report.
Answers are lines on stdout: `{"report": ...}`, `{"end": true}`, `{"error": ...}`. What the program
itself prints goes to stderr.
"""

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from loader.proof.program import RankProgram, Reports


def main() -> None:
    """Serve the harness on stdin and stdout until it closes them."""
    out = os.dup(1)
    os.dup2(2, 1)
    setup: dict[str, Any] = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    program = RankProgram(**setup["program"])
    try:
        reports = program.start(**setup["start"])
        for _ in sys.stdin:
            _answer(out, _next(reports))
    except BaseException as error:
        named = isinstance(error, Exception) and program.names(error)
        told = {"kind": type(error).__name__, "message": str(error), "named": named}
        _answer(out, {"error": told})
        if not named:
            raise


def _next(reports: Reports) -> dict[str, Any]:
    report = next(reports, None)
    return {"end": True} if report is None else {"report": asdict(report)}


def _answer(out: int, message: dict[str, Any]) -> None:
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(out, line) :]


if __name__ == "__main__":
    main()
