"""Runs one peer on one job: `PYTHON tools/peers/run.py NAME < job.json`.

PYTHON is the interpreter of an environment that has the peer. One JSON object is printed: what
`PeerRun` holds, or `{"absent": REASON}` where the library is not installed.
"""

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the peer that the first argument names."""
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


def _use_this_checkout() -> None:
    """Make `tools` ours alone: nothing else of this checkout hides what the environment has."""
    folder = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        "tools", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    sys.modules["tools"] = importlib.util.module_from_spec(spec)
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]


_use_this_checkout()  # also in worker processes, which run this file first

if __name__ == "__main__":
    main()
