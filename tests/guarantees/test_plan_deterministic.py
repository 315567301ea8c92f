"""Same inputs, same plan: in another process, from another lake, on any machine."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from lake import Episode, EpisodeWriter, Lake, create_lake
from packing.arrange import arrange
from packing.make_plan import make_plan
from packing.pack_table import pack_table
from packing.plan import Plan
from packing.plan_hash import content_digest
from packing.settings import PlanSettings
from packing.spans import Spans
from packing.window_spans import WindowSpans
from tests.packing.synthetic import runs_of_steps

_SCRIPT = """
import sys
from lake import open_lake
from packing.make_plan import make_plan
from packing.window_spans import WindowSpans
plan = make_plan(
    open_lake(sys.argv[1]), spans=WindowSpans(horizon=4, history=2), budget_tokens=256,
    slots_per_step=3, epochs=2,
)
print(plan.plan_hash)
"""


def plan_of(lake: Lake, seed: int = 0, horizon: int = 4) -> Plan:
    return make_plan(
        lake,
        spans=WindowSpans(horizon=horizon, history=2),
        budget_tokens=256,
        slots_per_step=3,
        epochs=2,
        seed=seed,
    )


def lake_of(path: Path, episodes: Sequence[Episode], batch: int) -> Lake:
    lake = create_lake(path)
    with EpisodeWriter(lake, batch_episodes=batch) as writer:
        for episode in episodes:
            writer.add(episode)
    lake.refresh()
    return lake


@pytest.fixture
def episodes(make_episode: Callable[..., Episode]) -> list[Episode]:
    names = (("top",), ("top", "wrist"), ())
    return [make_episode(n, steps=5 + n * 3, camera_names=names[n % 3]) for n in range(9)]


def test_row_order_commits_and_lake_do_not_matter(tmp_path: Path, episodes: list[Episode]) -> None:
    one = plan_of(lake_of(tmp_path / "one.lake", episodes, 100))
    two = plan_of(lake_of(tmp_path / "two.lake", episodes[::-1], 2))
    assert one.plan_hash == two.plan_hash
    assert one.packs.equals(two.packs)
    assert not one.episodes["address"].equals(two.episodes["address"])


def test_another_process_with_another_hash_seed(tmp_path: Path, episodes: list[Episode]) -> None:
    lake = lake_of(tmp_path / "one.lake", episodes, 100)
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT, lake.uri],
        env={**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "2"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == plan_of(lake).plan_hash


def test_any_other_input_is_another_plan(tmp_path: Path, episodes: list[Episode]) -> None:
    lake = lake_of(tmp_path / "one.lake", episodes, 100)
    fewer = lake_of(tmp_path / "two.lake", episodes[1:], 100)
    hashes = [plan_of(lake), plan_of(lake, seed=1), plan_of(lake, horizon=5), plan_of(fewer)]
    assert len({plan.plan_hash for plan in hashes}) == 4


def test_changed_values_of_an_episode_are_another_plan(
    tmp_path: Path, episodes: list[Episode], make_episode: Callable[..., Episode]
) -> None:
    """Same ids and lengths, other content: the hash knows the content hashes."""
    base = make_episode(0, steps=5, camera_names=("top",))
    action = base.features["action"].copy()
    action[[0, 1]] = action[[1, 0]]  # the same statistics
    swapped = make_episode(
        0, steps=5, camera_names=("top",), features={**base.features, "action": action}
    )
    one = plan_of(lake_of(tmp_path / "one.lake", [base, *episodes[1:]], 100))
    two = plan_of(lake_of(tmp_path / "two.lake", [swapped, *episodes[1:]], 100))
    assert one.packs.equals(two.packs)
    assert one.plan_hash != two.plan_hash


@pytest.mark.parametrize(
    ("packer", "lanes", "golden"),
    [
        ("shuffle-fill", 1, "64fb31b38de35ce198d21c474d099dcb"),
        ("shuffle-fill", 4, "363ff79b3761512c2f6e7da717b59cca"),
        ("bfd", 1, "7fa7a0bd069002b6393e0b7fa1adb6b5"),
    ],
)
def test_the_arrangement_is_frozen(packer: str, lanes: int, golden: str) -> None:
    """Digest of a plan of 5,000 spans without a lake; it may never differ between machines."""
    n = 5000
    at = np.arange(n, dtype=np.int64)
    zero = np.zeros(n, np.int32)
    length = (16 + (at * 7919 % 997) * (at * 104_729 % 13) // 4).astype(np.int32)
    step = (at % 50).astype(np.int32)
    spans = Spans(
        episode=(at // 50).astype(np.int32),
        start=step,
        stop=step + np.int32(1),
        stride=zero + np.int32(1),
        action_start=step,
        action_stop=step + np.int32(1),
        text=zero,
        images=zero + np.int32(1),
        prefix_tokens=length,
        action_tokens=zero + np.int32(1),
    )
    settings = PlanSettings(
        budget_tokens=8192,
        slots_per_step=8,
        epochs=2,
        packer="bfd" if packer == "bfd" else "shuffle-fill",
        max_images=20,
        open_runs=64,
        lanes=lanes,
        balance_window_steps=32,
    )
    arrangement = arrange(spans, runs_of_steps(spans, 8), settings)
    table = pack_table(spans, arrangement, settings.slots_per_step)
    assert content_digest({}, [table]) == golden
