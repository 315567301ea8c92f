"""A lake grows under a training: the plan is extended, and what was consumed stays consumed once.

A loader stands in the old plan when episodes are added. In the extended plan it goes on from its
old state, on another world size: the remaining old steps bring the very bytes that they would have
brought, and all episodes, old and new, are consumed as planned, each occurrence once.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lake import EpisodeWriter, create_lake
from loader import PackLoader
from loader.errors import LoaderStateError
from packing.extend_plan import extend_plan
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.window_spans import WindowSpans
from tests.loader import scenes


def consume(
    loaders: list[PackLoader], steps: int
) -> tuple[Counter[tuple[int, int, int]], list[dict[str, Any]]]:
    """Take some steps on every rank; returns (epoch, span, occurrence) and the states."""
    seen: Counter[tuple[int, int, int]] = Counter()
    states = []
    for loader in loaders:
        left = steps * loader.packs_per_step
        for batch in loader:
            spans = batch.span_ids[: batch.num_spans].tolist()
            times = batch.occurrence_ids[: batch.num_spans].tolist()
            seen.update((batch.epoch, *pair) for pair in zip(spans, times, strict=True))
            left -= 1
            if not left:
                break
        states.append(loader.state_dict())
        loader.close()
    return seen, states


def planned(plan: Plan) -> Counter[tuple[int, int, int]]:
    return Counter(
        (row["epoch"], span, occurrence)
        for row in plan.packs.select(["epoch", "span_id", "occurrence"]).to_pylist()
        for span, occurrence in zip(row["span_id"], row["occurrence"], strict=True)
    )


def test_a_position_goes_on_in_the_extended_plan(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "grows.lake")
    with EpisodeWriter(lake) as writer:
        for number in (0, 1, 2):
            writer.add(scenes.scene_episode(number))
    lake.refresh()
    parent = scenes.scene_plan(lake)

    def loaders(plan: Plan, world_size: int) -> list[PackLoader]:
        return [
            PackLoader(lake, plan, rank, world_size, process="inline", framework="numpy")
            for rank in range(world_size)
        ]

    stop = parent.num_steps // 2
    before, states = consume(loaders(parent, 3), stop)
    with EpisodeWriter(lake) as writer:
        for number in (3, 4, 5):
            writer.add(scenes.scene_episode(number))
    lake.refresh()
    grown = extend_plan(lake, parent)
    after = loaders(grown, 2)
    for loader in after:
        loader.load_state_dict(states[0])
    rest, ends = consume(after, grown.num_steps - stop)
    assert before + rest == planned(grown)
    assert set(planned(grown).values()) == {1}
    assert ends[0] == {**states[0], "plan_hash": grown.plan_hash, "next_step": grown.num_steps}

    # A loader of the old plan does not take a position of the longer one.
    with pytest.raises(LoaderStateError, match="loader state of plan"):
        loaders(parent, 1)[0].load_state_dict(ends[0])
    other = make_plan(lake, spans=WindowSpans(horizon=2), budget_tokens=256, slots_per_step=3)
    with pytest.raises(LoaderStateError, match="loader state of plan"):
        loaders(other, 1)[0].load_state_dict(states[0])


def test_old_steps_bring_the_same_batches(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "grows.lake")
    with EpisodeWriter(lake) as writer:
        for number in (0, 1, 2):
            writer.add(scenes.scene_episode(number))
    lake.refresh()
    parent = scenes.scene_plan(lake)
    with EpisodeWriter(lake) as writer:
        for number in (3, 4, 5):
            writer.add(scenes.scene_episode(number))
    lake.refresh()
    grown = extend_plan(lake, parent)
    with (
        PackLoader(lake, parent, process="inline", framework="numpy") as old,
        PackLoader(lake, grown, process="inline", framework="numpy") as new,
    ):
        for first, second in zip(old, new, strict=False):
            ours, theirs = first.trimmed(), second.trimmed()
            assert theirs.plan_hash == parent.plan_hash
            for (name, one), (_, two) in zip(ours.arrays(), theirs.arrays(), strict=True):
                shared = tuple(slice(min(a, b)) for a, b in zip(one.shape, two.shape, strict=True))
                assert one[shared].tobytes() == two[shared].tobytes(), name
