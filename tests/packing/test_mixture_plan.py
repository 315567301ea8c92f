"""Plans of mixtures: what is asked is what is planned, verified, saved and grown."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from catalog.selection import freeze_selection
from lake import Episode, Lake
from packing.errors import PackingError, PlanError
from packing.extend_plan import extend_plan
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_store import load_plan, save_plan
from packing.trajectory_spans import TrajectorySpans
from packing.verify import verify_plan
from packing.window_spans import WindowSpans
from tests.packing.mixed_plans import EVEN_AND_ODD, plan_of

Write = Callable[[Sequence[Episode]], Lake]


def occurrences(plan: Plan) -> list[Counter[int]]:
    """Per epoch: span id -> how often."""
    found: list[Counter[int]] = [Counter() for _ in range(plan.header.epochs)]
    for row in plan.packs.select(["epoch", "span_id"]).to_pylist():
        found[row["epoch"]].update(row["span_id"])
    return found


@pytest.mark.parametrize(
    "mixture",
    [
        EVEN_AND_ODD,
        Mixture(temperature=3, epoch_tokens=20_000),
        Mixture(over="embodiment", max_repeats=1),
        replace(EVEN_AND_ODD, per="episode", epoch_tokens=3_000),
        replace(EVEN_AND_ODD, per="episode", epoch_tokens=5_000, max_repeats=2),
        Mixture(weights={"even": 1, "odd": 0}),
    ],
    ids=["weights", "temperature", "embodiment", "episode", "capped episodes", "left out"],
)
@pytest.mark.parametrize(
    "spans", [WindowSpans(horizon=4), TrajectorySpans(max_steps=6)], ids=["window", "trajectory"]
)
@pytest.mark.parametrize("packer", ["shuffle-fill", "bfd"])
def test_mixed_plans_hold_every_promise(
    ten: Lake, mixture: Mixture, spans: Any, packer: str
) -> None:
    run_length = 2 if isinstance(spans, WindowSpans) else None
    plan = plan_of(ten, mixture, spans=spans, packer=packer, epochs=3, run_length=run_length)
    assert "as often as the mixture says" in verify_plan(plan)[1]


def test_shares_are_those_asked_to_within_a_run(ten: Lake) -> None:
    plan = plan_of(ten, EVEN_AND_ODD)
    source_tokens = sum(audit.tokens for audit in plan.header.audit)
    even, odd = plan.header.shares
    assert (even.wished_share, odd.wished_share) == (0.75, 0.25)
    assert (even.source, odd.source) == ("even", "odd")
    assert even.asked_tokens + odd.asked_tokens == 4 * source_tokens
    assert even.asked_share == pytest.approx(0.75, abs=1e-3)
    assert even.got_share == pytest.approx(0.75, abs=0.02)
    assert plan.header.quality.padding < 0.3
    total = sum(plan.packs["tokens"].to_pylist())
    assert even.got_tokens + odd.got_tokens == total
    dataset = np.array(plan.episodes["dataset"].to_pylist())
    of_even = sum(
        prefix + action
        for row in plan.packs.to_pylist()
        for episode, prefix, action in zip(
            row["episode"], row["prefix_tokens"], row["action_tokens"], strict=True
        )
        if plan.header.datasets[dataset[episode]] == "even"
    )
    assert of_even == even.got_tokens


def test_repeats_and_omissions_are_counted(ten: Lake) -> None:
    plan = plan_of(ten, EVEN_AND_ODD)
    counts = occurrences(plan)
    first_of_run = np.cumsum([0, *plan.runs["num_spans"].to_pylist()])
    for share, number in zip(plan.header.shares, (0, 1), strict=True):
        mine = [
            span
            for run, source in enumerate(plan.runs["source"].to_pylist())
            if source == number
            for span in range(first_of_run[run], first_of_run[run + 1])
        ]
        assert share.spans == len(mine)
        per_epoch = [[epoch[span] for span in mine] for epoch in counts]
        assert share.planned == sum(map(sum, per_epoch))
        assert share.repeated == sum(max(c - 1, 0) for epoch in per_epoch for c in epoch)
        assert share.omitted == sum(c == 0 for epoch in per_epoch for c in epoch)
        assert share.never == sum(not any(cs) for cs in zip(*per_epoch, strict=True))
        assert share.most_in_epoch == max(max(epoch) for epoch in per_epoch)
    assert plan.header.shares[0].repeated > 0 < plan.header.shares[1].omitted
    by_dataset = {audit.dataset: audit for audit in plan.header.audit}
    for share in plan.header.shares:
        audit = by_dataset[share.source]
        assert (audit.planned, audit.repeated, audit.omitted) == (
            share.planned,
            share.repeated,
            share.omitted,
        )
        assert (audit.dropped, audit.cut) == (0, 0)


def test_occurrences_are_numbered_within_an_epoch(ten: Lake) -> None:
    plan = plan_of(ten, Mixture(weights={"even": 9, "odd": 1}))
    seen: set[tuple[int, int, int]] = set()
    for row in plan.packs.to_pylist():
        for span, number in zip(row["span_id"], row["occurrence"], strict=True):
            assert number == 0 or (row["epoch"], span, number - 1) in seen
            assert (row["epoch"], span, number) not in seen
            seen.add((row["epoch"], span, number))
    assert max(number for _, _, number in seen) >= 1


def test_every_span_alike_is_every_span_once(ten: Lake) -> None:
    """A mixture as recorded is the plan without a mixture, but for the record of it."""
    plain, mixed = plan_of(ten, None), plan_of(ten, Mixture())
    assert mixed.packs.equals(plain.packs)
    assert mixed.plan_hash != plain.plan_hash
    assert plain.packs["occurrence"].to_pylist() == [
        [0] * len(row) for row in plain.packs["span_id"].to_pylist()
    ]
    assert not plain.header.shares
    assert [share.omitted + share.repeated for share in mixed.header.shares] == [0, 0]


def test_an_epoch_of_stated_tokens(ten: Lake) -> None:
    plan = plan_of(ten, Mixture(epoch_tokens=1000))
    largest = max(plan.runs["tokens"].to_pylist())
    tokens, epochs = plan.packs["tokens"].to_numpy(), plan.packs["epoch"].to_numpy()
    for epoch in range(4):
        assert abs(int(tokens[epochs == epoch].sum()) - 1000) <= 2 * largest
    # The epochs go on where the one before stopped: no span twice before each had its turn.
    for first, second in pairwise(occurrences(plan)):
        assert not set(first) & set(second)


def test_selections_are_the_episodes(ten: Lake) -> None:
    short = freeze_selection(ten, "num_steps < 10", name="short")
    long = freeze_selection(ten, "num_steps > 15", name="long")
    mixture = Mixture(
        over="selection", selections=("short", "long"), weights={"short": 1, "long": 1}
    )
    plan = plan_of(ten, mixture)
    verify_plan(plan)
    ids = sorted(short.episode_ids + long.episode_ids)
    assert plan.episodes["episode_id"].to_pylist() == ids
    assert plan.header.versions == short.versions
    planned = plan.header.mixture
    assert planned is not None
    assert [(s.name, s.selection_hash) for s in planned.sources] == [
        ("short", short.hash),
        ("long", long.hash),
    ]
    assert [share.got_share for share in plan.header.shares] == pytest.approx([0.5] * 2, abs=0.03)
    with pytest.raises(PlanError, match="the selections are the episodes of the plan; leave out"):
        plan_of(ten, mixture, "success")


def test_selections_of_several_versions_are_read_as_the_lake_is_now(
    ten: Lake, write: Write, make_episode: Callable[..., Episode]
) -> None:
    freeze_selection(ten, "num_steps < 10", name="short")
    lake = write([make_episode(50, steps=40)])
    freeze_selection(lake, "num_steps > 35", name="long")
    plan = plan_of(lake, Mixture(over="selection", selections=("short", "long")))
    assert plan.header.versions["trajectories"] == lake.versions()["trajectories"]
    assert [share.episodes for share in plan.header.shares] == [4, 1]


def test_an_episode_in_two_selections_is_refused_by_name(ten: Lake) -> None:
    freeze_selection(ten, "num_steps < 10", name="a")
    freeze_selection(ten, "num_steps < 8", name="b")
    with pytest.raises(PlanError, match=r"2 episodes are in selection b and .* which is in a: an"):
        plan_of(ten, Mixture(over="selection", selections=("a", "b")))


def test_what_cannot_be_mixed_says_so(ten: Lake) -> None:
    with pytest.raises(PlanError, match="weight of droid, but the episodes have no such dataset"):
        plan_of(ten, Mixture(weights={"droid": 1, "even": 1, "odd": 1}))
    with pytest.raises(PackingError, match="cannot be filled"):
        plan_of(ten, Mixture(max_repeats=1, epoch_tokens=10**6))


def test_statistics_are_those_of_the_episodes(ten: Lake) -> None:
    assert plan_of(ten, EVEN_AND_ODD).header.stats == plan_of(ten, None).header.stats


def test_figures_are_those_of_the_planned_occurrences(ten: Lake) -> None:
    """Of a source taken three times and another left out, they are those of three epochs of it."""
    mixture = Mixture(weights={"even": 1, "odd": 0})
    tokens = plan_of(ten, mixture).header.shares[0].tokens
    thrice = plan_of(ten, replace(mixture, epoch_tokens=3 * tokens), epochs=1).header.quality
    alone = plan_of(ten, None, "dataset = 'even'", epochs=3).header.quality
    assert thrice.images_over_padded == pytest.approx(alone.images_over_padded)
    assert thrice.tokens_over_padded == pytest.approx(alone.tokens_over_padded, rel=0.1)
    assert thrice.run_steps <= alone.run_steps + 2
    assert 0 < thrice.reads_per_span <= 1
    assert 0 < thrice.bias_over_random < 10


def test_hash_and_round_trip(ten: Lake) -> None:
    plan = plan_of(ten, EVEN_AND_ODD)
    assert plan_of(ten, EVEN_AND_ODD).plan_hash == plan.plan_hash
    others = [Mixture(weights={"even": 0.7, "odd": 0.3}), replace(EVEN_AND_ODD, per="episode")]
    assert len({plan_of(ten, other).plan_hash for other in others} | {plan.plan_hash}) == 3
    save_plan(ten, plan, "mixed")
    loaded = load_plan(ten, "mixed")
    assert loaded.header == plan.header
    assert loaded.runs.equals(plan.runs)
    verify_plan(loaded)


def test_a_mixed_plan_grows_by_a_mixture(
    ten: Lake, write: Write, make_episode: Callable[..., Episode]
) -> None:
    parent = plan_of(ten, replace(EVEN_AND_ODD, per="episode"))
    lake = write([make_episode(100 + n, steps=8 + n, dataset="a-third") for n in range(3)])
    grown = extend_plan(lake, parent, mixture=Mixture(epoch_tokens=500, per="episode"))
    assert len(verify_plan(grown)) == 9
    assert [share.source for share in grown.header.shares] == ["a-third"]
    assert grown.packs.slice(0, parent.packs.num_rows).equals(parent.packs)
    every = Mixture(weights={"even": 1, "odd": 1, "a-third": 2}, per="episode")
    again = extend_plan(lake, grown, "true", mixture=every, epochs=1)
    verify_plan(again)
    assert again.header.shares[0].got_share == pytest.approx(0.5, abs=0.05)
    freeze_selection(lake, "num_steps < 10", name="short")
    chosen = Mixture(over="selection", selections=("short",))
    verify_plan(extend_plan(lake, again, mixture=chosen))


def test_a_plain_plan_grows_by_a_mixture(ten: Lake) -> None:
    parent = plan_of(ten, None)
    grown = extend_plan(ten, parent, "num_steps > 5", mixture=replace(EVEN_AND_ODD, per="episode"))
    lines = verify_plan(grown)
    assert "exactly once" in lines[1]
    assert "as the mixture says" in lines[5]
    first = parent.header.num_spans
    assert all(
        span >= first
        for row in grown.packs.slice(parent.packs.num_rows).to_pylist()
        for span in row["span_id"]
    )
