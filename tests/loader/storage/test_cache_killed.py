"""Processes that share a cache folder are killed at random points, many times."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loader.storage import cache_rounds

_ROOT = Path(__file__).resolve().parents[3]
_ROUNDS = 20


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_users_leave_a_cache_that_is_right(tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", cache_rounds.__file__, str(tmp_path), str(seed), str(_ROUNDS)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    assert not done.stderr  # no trouble was warned of
    seen = json.loads(done.stdout)
    assert seen["wrong"] == 0
    assert seen["damaged"] == 0  # what is published is whole
    # Beside the entries there may be one temporary file for each user, those killed before too.
    assert seen["most"] <= cache_rounds.LIMIT + 2 * cache_rounds.USERS * 32_768
    assert seen["temporary"] == seen["flights"] == 0
    assert seen["found"] > 5
    assert seen["held"] <= seen["counted"] <= cache_rounds.LIMIT
