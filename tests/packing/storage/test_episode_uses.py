"""What a memory of episodes holds, against a cache that is really kept."""

from collections import OrderedDict

import numpy as np
import pytest

from lake import Lake
from packing.make_plan import make_plan
from packing.storage.episode_uses import Uses, held_windows, uses_of_packs, uses_of_some
from packing.storage.packs import choose_packs
from packing.window_spans import WindowSpans


def _uses(windows: list[list[int]]) -> Uses:
    """Of one reader, given the episodes of each of its windows."""
    rows = sorted((episode, nth) for nth, each in enumerate(windows) for episode in set(each))
    episode, nth = np.array(rows, np.int64).reshape(-1, 2).T
    zeros = np.zeros(len(rows), np.int64)
    return Uses(first=zeros, episode=episode, reader=zeros, nth=nth)


def test_missed_is_what_was_used_too_long_ago() -> None:
    uses = _uses([[0, 1], [0], [2], [1, 2], [0]])
    # Rows: episode 0 in windows 0, 1, 4; 1 in 0, 3; 2 in 2, 3.
    assert uses.opens.tolist() == [True, False, False, True, False, True, False]
    assert uses.missed(None).tolist() == uses.opens.tolist()
    assert uses.missed(1).tolist() == [True, False, True, True, True, True, False]
    assert uses.missed(3).tolist() == uses.opens.tolist()


def test_windows_that_a_memory_holds() -> None:
    memory = np.full(10, 100)
    every = _uses([[episode] for episode in range(10)] * 10)
    assert held_windows(every, memory, 1000) is None
    # One new episode a window: four windows have four episodes.
    assert held_windows(every, memory, 400) == 4
    assert held_windows(every, memory, 50) == 1
    assert held_windows(_uses([]), memory, 0) is None


@pytest.mark.parametrize("limit", [20, 60, 120])
def test_misses_are_those_of_a_cache(limit: int) -> None:
    """Episodes of a drifting working set, 20 per window, against a least-recently-used cache."""
    rng = np.random.default_rng(0)
    episodes, windows = 300, 400
    drift = [(rng.integers(0, 60, 20) + 10 * (nth // 4)) % episodes for nth in range(windows)]
    uses = _uses([each.tolist() for each in drift])
    held = held_windows(uses, np.ones(episodes, np.int64), limit)
    assert held is not None
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for each in drift:
        for episode in dict.fromkeys(each.tolist()):
            misses += episode not in cache
            cache[episode] = None
            cache.move_to_end(episode)
        while len(cache) > limit:
            cache.popitem(last=False)
    assert int(uses.missed(held).sum()) == pytest.approx(misses, rel=0.12)


def test_some_episodes_with_all_their_uses(ten: Lake) -> None:
    plan = make_plan(
        ten, spans=WindowSpans(horizon=4), budget_tokens=128, slots_per_step=6, epochs=3
    )
    packs = choose_packs(plan, 2, 2, 1 << 30)
    some, share = uses_of_some(plan, packs, 1 << 30)
    every = uses_of_packs(plan, plan.episodes.num_rows, packs)
    assert share == 1
    for name in ("episode", "reader", "nth"):
        assert getattr(some, name).tolist() == getattr(every, name).tolist()
    # A reader per rank and worker; what is not looked at is whole episodes.
    assert set(some.reader.tolist()) == {0, 1, 2, 3}
