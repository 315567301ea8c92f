"""What starting a loader imports and reads: what it does not need, it does not pay for.

Times are measured by `headrace bench loader`; here it is counted what would cost them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from lake import Lake
from loader import PackLoader
from packing.plan_store import save_plan
from packing.stored_plan import StoredPlan
from tests.loader import scenes

_REPOSITORY = Path(__file__).parents[2]
_HEAVY = ("torch", "duckdb", "numba", "tokenizers", "sentencepiece", "h5py", "mujoco", "rich")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = scenes.scene_lake(tmp_path_factory.mktemp("saved"))
    save_plan(lake, scenes.scene_plan(lake), "mix")
    return lake


def heavy_after(code: str) -> set[str]:
    """Which heavy modules a fresh process has imported after some code."""
    told = f"{code}\nimport sys\nprint(*(m for m in {_HEAVY} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=_REPOSITORY, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["loader", "loader.process.worker", "loader.pack_loader"])
def test_nothing_heavy_is_imported_with(module: str) -> None:
    assert heavy_after(f"import {module}") == set()


@pytest.mark.parametrize("process", ["inline", "child"])
def test_nothing_heavy_is_imported_to_stream_a_saved_plan(saved: Lake, process: str) -> None:
    code = f"""
from loader import PackLoader
with PackLoader({saved.uri!r}, "mix", process={process!r}, framework="numpy") as loader:
    next(iter(loader))"""
    assert heavy_after(code) == set()


def test_the_consumer_of_a_decode_process_reads_no_table_of_the_plan(
    saved: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredPlan, "_read", lambda *_: pytest.fail("a table was read"))
    with PackLoader(saved, "mix", framework="numpy") as loader:
        assert sum(batch.num_spans for batch in loader) > 0
