"""Runs one peer on one job: `PYTHON tools/peers/run.py NAME < job.json`.

PYTHON is the interpreter of an environment that has the peer. One JSON object is printed: what
`PeerRun` holds, or `{"absent": REASON}` where the library is not installed.
"""

import importlib
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the peer that the first argument names."""
    # This package comes last, so that nothing beside it hides what the environment has installed.
    sys.path[0:1] = []
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no result
    job = json.loads(sys.stdin.read())
    try:
        peer = importlib.import_module(f"tools.peers.{sys.argv[1]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tools"):
            raise
        result = {"absent": f"no module {error.name}"}
    else:
        result = peer.run(job)
    with out:
        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
