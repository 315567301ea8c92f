"""Occurrences: floor or ceiling of each quota, in every epoch and over any number of them."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from packing.arrange import arrange
from packing.errors import PlanError
from packing.mixture import Mixture, MixtureSource, Per, PlannedMixture
from packing.occurrences import Occurrences, draw_occurrences, number_occurrences
from packing.plan import RUNS_SCHEMA
from packing.settings import PlanSettings
from tests.packing.synthetic import spans_of_lengths

Int64s = NDArray[np.int64]


def table(episode: Any, source: Any, tokens: Any, num_spans: Any = None) -> pa.Table:
    tokens = np.asarray(tokens, np.int64)
    spans = np.ones(len(tokens)) if num_spans is None else np.asarray(num_spans)
    return pa.table(
        {
            "episode": np.asarray(episode, np.int32),
            "source": np.asarray(source, np.int32),
            "num_spans": spans.astype(np.int32),
            "tokens": tokens,
        },
        schema=RUNS_SCHEMA,
    )


def planned(runs: pa.Table, epoch_tokens: list[int], **options: Any) -> PlannedMixture:
    source, tokens = runs["source"].to_numpy(), runs["tokens"].to_numpy()
    return PlannedMixture(
        asked=Mixture(**options),
        sources=tuple(
            MixtureSource(
                name=f"s{number}",
                episodes=1,
                spans=1,
                tokens=int(tokens[source == number].sum()),
                epoch_tokens=count,
            )
            for number, count in enumerate(epoch_tokens)
        ),
    )


@st.composite
def mixtures(draw: st.DrawFn, per: Per) -> tuple[pa.Table, PlannedMixture, int]:
    """Runs of several sources and episodes, epoch tokens of each, a seed."""
    episode, source, tokens, spans = [], [], [], []
    sources = draw(st.integers(1, 3))
    for number in range(draw(st.integers(sources, 6))):
        for _ in range(draw(st.integers(1, 5))):
            episode.append(number)
            source.append(number % sources)
            spans.append(draw(st.integers(1, 4)))
            tokens.append(spans[-1] * draw(st.integers(1, 50)))
    runs = table(episode, source, tokens, spans)
    total = np.bincount(source, weights=tokens).astype(np.int64)
    most = draw(st.none() | st.integers(1, 3))
    quotas = [draw(st.integers(0, int(t) * (most or 4))) for t in total]
    mixture = planned(runs, quotas, per=per, max_repeats=most)
    return runs, mixture, draw(st.integers(0, 5))


def rates(runs: pa.Table, mixture: PlannedMixture) -> list[Fraction]:
    """The quota of each run's spans, straight from the definition."""
    source, episode = runs["source"].to_pylist(), runs["episode"].to_pylist()
    tokens = runs["tokens"].to_pylist()
    by_episode: dict[int, int] = {}
    for e, t in zip(episode, tokens, strict=True):
        by_episode[e] = by_episode.get(e, 0) + t
    quota: dict[int, Fraction] = {}
    for number, asked in enumerate(mixture.sources):
        if mixture.asked.per == "step":
            quota[number] = Fraction(asked.epoch_tokens, asked.tokens)
            continue
        mine = {e: by_episode[e] for e, s in zip(episode, source, strict=True) if s == number}
        most = mixture.asked.max_repeats
        capped: set[int] = set()
        while True:
            left = asked.epoch_tokens - sum((most or 0) * mine[e] for e in capped)
            free = set(mine) - capped
            each = Fraction(left, len(free)) if free else Fraction(0)
            over = {e for e in free if most is not None and each > most * mine[e]}
            if not over:
                break
            capped |= over
        for e, held in mine.items():
            quota[-1 - e] = Fraction(most or 0) if e in capped else each / held
    if mixture.asked.per == "step":
        return [quota[s] for s in source]
    return [quota[-1 - e] for e in episode]


def assert_floor_or_ceiling(count: int, quota: Fraction) -> None:
    assert math.floor(quota) <= count <= math.ceil(quota)


@pytest.mark.parametrize("per", ["step", "episode"])
@given(data=st.data())
def test_each_span_occurs_as_often_as_its_quota_says(per: Per, data: st.DataObject) -> None:
    runs, mixture, seed = data.draw(mixtures(per))
    drawn = draw_occurrences(runs, mixture, seed)
    quota = rates(runs, mixture)
    total = np.zeros(runs.num_rows, np.int64)
    for epoch in range(7):
        counts = drawn.of_runs(epoch)
        total += counts
        for r in range(runs.num_rows):
            assert_floor_or_ceiling(int(counts[r]), quota[r])
            assert_floor_or_ceiling(int(total[r]), quota[r] * (epoch + 1))
        assert (
            drawn.counts(epoch).tolist() == np.repeat(counts, runs["num_spans"].to_numpy()).tolist()
        )
        if mixture.asked.max_repeats is not None:
            assert counts.max() <= mixture.asked.max_repeats


@pytest.mark.parametrize("per", ["step", "episode"])
@given(data=st.data())
def test_tokens_are_within_one_run(per: Per, data: st.DataObject) -> None:
    """Of a source's tokens of an epoch, or of each episode's equal share of them."""
    runs, mixture, seed = data.draw(mixtures(per))
    drawn = draw_occurrences(runs, mixture, seed)
    tokens = runs["tokens"].to_numpy()
    quota = rates(runs, mixture)
    circles = runs["source" if per == "step" else "episode"].to_numpy()
    for epoch in range(5):
        counts = drawn.of_runs(epoch)
        for circle in set(circles.tolist()):
            mine = np.flatnonzero(circles == circle)
            asked = quota[int(mine[0])] * int(tokens[mine].sum())
            assert abs(int((counts * tokens)[mine].sum()) - asked) <= int(tokens[mine].max())


def test_an_epoch_goes_on_where_the_one_before_stopped() -> None:
    runs = table(np.arange(100), np.zeros(100), np.full(100, 7))
    drawn = draw_occurrences(runs, planned(runs, [7 * 25]), 3)
    epochs = [set(np.flatnonzero(drawn.of_runs(epoch)).tolist()) for epoch in range(8)]
    assert [len(epoch) for epoch in epochs] == [25] * 8
    assert set.union(*epochs[:4]) == set(range(100))
    assert epochs[:4] == epochs[4:]
    other = draw_occurrences(runs, planned(runs, [7 * 25]), 4)
    assert set(np.flatnonzero(other.of_runs(0)).tolist()) not in epochs


def test_chosen_runs_are_of_all_places() -> None:
    runs = table(np.arange(4000), np.zeros(4000), np.full(4000, 3))
    counts = draw_occurrences(runs, planned(runs, [3000]), 0).of_runs(0)
    per_tenth = counts.reshape(10, 400).sum(axis=1)
    assert counts.sum() == 1000
    assert per_tenth.min() > 70
    assert per_tenth.max() < 130


def test_equal_shares_of_episodes_however_long() -> None:
    """Also where each episode is one run: what is over in one is missing in another."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 1000, 2000)
    runs = table(np.arange(2000), np.zeros(2000), lengths)
    asked = int(lengths.sum()) // 3
    drawn = draw_occurrences(runs, planned(runs, [asked], per="episode"), 0)
    counts = np.array([drawn.of_runs(epoch) for epoch in range(20)])
    short, long = lengths < 300, lengths > 700
    mean = counts.mean(axis=0) * lengths
    assert mean[short].mean() == pytest.approx(asked / 2000, rel=0.02)
    assert mean[long].mean() == pytest.approx(asked / 2000, rel=0.02)
    off = (counts * lengths).sum(axis=1) / asked - 1
    assert np.abs(off).max() < 0.03
    assert abs(off.mean()) < 0.003


def test_the_same_on_every_machine() -> None:
    runs = table(
        [0, 0, 1, 2, 2, 3], [0, 0, 1, 0, 0, 1], [30, 20, 50, 40, 10, 60], [3, 2, 5, 4, 1, 6]
    )
    for per, expected in (
        ("step", [[0, 1, 3, 1, 0, 2], [1, 0, 2, 0, 1, 2], [0, 1, 2, 1, 0, 3]]),
        ("episode", [[1, 0, 3, 0, 0, 2], [0, 1, 2, 1, 1, 2], [1, 1, 3, 1, 0, 2]]),
    ):
        drawn = draw_occurrences(runs, planned(runs, [60, 250], per=per), 7)
        assert [drawn.of_runs(epoch).tolist() for epoch in range(3)] == expected


def test_large_numbers_are_exact_or_refused() -> None:
    runs = table([0, 1], [0, 0], [10**13 + 1, 10**13])
    drawn = draw_occurrences(runs, planned(runs, [3 * 10**13]), 0)
    counts = np.array([drawn.of_runs(epoch) for epoch in range(1000)])
    q = Fraction(3 * 10**13, 2 * 10**13 + 1)
    for total in counts.sum(axis=0).tolist():
        assert_floor_or_ceiling(total, q * 1000)
    with pytest.raises(PlanError, match=r"epoch 1000000 .* beyond 64-bit"):
        drawn.of_runs(10**6)
    many = table([0, 1], [0, 0], [10**18, 4 * 10**18])
    with pytest.raises(PlanError, match="beyond 64-bit"):
        draw_occurrences(many, planned(many, [10**18], per="episode"), 0)


def test_counts_of_spans_follow_their_runs() -> None:
    drawn = Occurrences(
        num_spans=np.array([2, 3]),
        whole=np.array([1, 0]),
        part=np.array([0, 1]),
        of=np.array([1, 2]),
        phase=np.array([0, 1]),
    )
    assert drawn.counts(0).tolist() == [1, 1, 1, 1, 1]
    assert drawn.counts(1).tolist() == [1, 1, 0, 0, 0]
    assert replace(drawn, phase=np.array([0, 0])).counts(0).tolist() == [1, 1, 0, 0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=40).map(
        lambda pairs: sorted(pairs, key=lambda pair: pair[0])
    )
)
def test_occurrences_are_numbered_in_the_order_of_consumption(
    items: list[tuple[int, int]],
) -> None:
    epoch, span = (np.array([item[k] for item in items], np.int64) for k in (0, 1))
    seen: dict[tuple[int, int], int] = {}
    expected = []
    for item in items:
        expected.append(seen.get(item, 0))
        seen[item] = expected[-1] + 1
    bounds = np.searchsorted(epoch, np.arange(4))
    numbered = number_occurrences(span, bounds)
    assert numbered.dtype == np.int32
    assert numbered.tolist() == expected


@given(data=st.data())
def test_packs_of_any_mixture_hold_each_span_as_often_as_drawn(data: st.DataObject) -> None:
    runs, mixture, seed = data.draw(mixtures(data.draw(st.sampled_from(["step", "episode"]))))
    of_run = np.repeat(np.arange(runs.num_rows), runs["num_spans"].to_numpy())
    tokens = runs["tokens"].to_numpy() // runs["num_spans"].to_numpy()
    spans = spans_of_lengths(tokens[of_run], episode=runs["episode"].to_numpy()[of_run])
    drawn = draw_occurrences(runs, mixture, seed)
    settings = PlanSettings(
        budget_tokens=128,
        slots_per_step=2,
        epochs=3,
        seed=seed,
        packer=data.draw(st.sampled_from(["shuffle-fill", "bfd"])),
        open_runs=data.draw(st.integers(1, 5)),
    )
    assume(all(drawn.counts(epoch).any() for epoch in range(3)))
    made = arrange(spans, of_run, settings, drawn.counts)
    assert made.packing.sum(spans.tokens).max() <= 128
    for epoch, (first, stop) in enumerate(pairwise(made.epoch_bounds().tolist())):
        counts = np.bincount(made.packing.items[first:stop], minlength=len(spans))
        assert counts.tolist() == drawn.counts(epoch).tolist()
