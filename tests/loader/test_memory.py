"""Memory of a loader's processes does not grow with its plan, nor with the packs that have passed.

Each case streams in a fresh process; what is compared leaves out pages of files. Plans of 1e7 spans
and 200,000 packs are measured by `python -m tools.bench.loader_memory`.
"""

from pathlib import Path

from packing.plan_store import save_plan
from tools.bench.large_plan import large_plan, signals_lake
from tools.bench.loader_memory import against_plan_size, held_at


def test_memory_does_not_grow_with_the_plan(tmp_path: Path) -> None:
    small, large = against_plan_size(tmp_path, [20_000, 2_000_000], packs=200).values()
    assert small.packs == large.packs == 200
    # The tables of the large plan are 110 MB, those of its episodes 2 MB.
    assert large.consumer_mb < small.consumer_mb + 5
    assert large.decode_mb < small.decode_mb + 40


def test_memory_does_not_grow_as_packs_pass(tmp_path: Path) -> None:
    lake = signals_lake(tmp_path)
    save_plan(lake, large_plan(lake, packs=4_500, budget_tokens=128), "tiny")
    warm, later = held_at(lake, "tiny", [1_500, 4_500], buffer_bytes=1 << 20)
    # A page that stays per pack would be 12 MB.
    assert later.consumer_mb < warm.consumer_mb + 5
    assert later.decode_mb < warm.decode_mb + 12
