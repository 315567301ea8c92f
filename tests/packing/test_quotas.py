"""Shares become whole tokens exactly, whatever caps and floors are in the way."""

import math
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from packing.errors import PlanError
from packing.mixture import Mixture, MixtureSource
from packing.quotas import exact, fill, plan_mixture, round_to_sum


def sources(**tokens: int) -> list[MixtureSource]:
    return [
        MixtureSource(name=name, episodes=1, spans=count // 10, tokens=count)
        for name, count in tokens.items()
    ]


def quotas(mixture: Mixture, **tokens: int) -> dict[str, int]:
    planned = plan_mixture(mixture, sources(**tokens))
    return {source.name: source.epoch_tokens for source in planned.sources}


def test_as_recorded_unless_told_otherwise() -> None:
    assert quotas(Mixture(), a=700, b=200, c=100) == {"a": 700, "b": 200, "c": 100}
    assert quotas(Mixture(epoch_tokens=100), a=700, b=200, c=100) == {"a": 70, "b": 20, "c": 10}


def test_weights_are_shares_of_tokens_as_they_are_written() -> None:
    mixture = Mixture(weights={"droid": 0.7, "bridge": 0.3}, epoch_tokens=10)
    assert quotas(mixture, droid=10**9, bridge=10) == {"droid": 7, "bridge": 3}
    scaled = Mixture(weights={"droid": 7, "bridge": 3}, epoch_tokens=10**15)
    assert quotas(scaled, droid=10, bridge=10) == {"droid": 7 * 10**14, "bridge": 3 * 10**14}


def test_an_epoch_has_the_tokens_of_the_sources_that_have_a_share() -> None:
    mixture = Mixture(weights={"a": 1, "b": 1, "c": 0})
    assert quotas(mixture, a=300, b=100, c=5000) == {"a": 200, "b": 200, "c": 0}


@pytest.mark.parametrize(
    ("temperature", "shares"),
    [(1, (100, 10_000)), (2, (10, 100)), (0.5, (1, 10_000)), (4, (1, 10**0.5)), (1e9, (1, 1))],
)
def test_temperature_flattens(temperature: float, shares: tuple[float, float]) -> None:
    got = quotas(Mixture(temperature=temperature, epoch_tokens=10**9), a=100, b=10_000)
    assert got["a"] == pytest.approx(10**9 * shares[0] / sum(shares), rel=1e-7)
    assert got["a"] + got["b"] == 10**9


def test_what_a_cap_takes_goes_to_the_others_in_proportion_again_and_again() -> None:
    mixture = Mixture(
        weights={"a": 0.6, "b": 0.2, "c": 0.1, "d": 0.1}, epoch_tokens=1000, max_repeats=2
    )
    # a may give 200 of its 600; of the 400 left over b would get 400, and may give 420 in all.
    assert quotas(mixture, a=100, b=210, c=1000, d=1000) == {"a": 200, "b": 400, "c": 200, "d": 200}
    assert quotas(mixture, a=100, b=150, c=1000, d=1000) == {"a": 200, "b": 300, "c": 250, "d": 250}


def test_floors_and_largest_shares() -> None:
    mixture = Mixture(min_share={"small": 0.1}, max_share={"*": 0.5}, epoch_tokens=1000)
    assert quotas(mixture, small=1, mid=1000, large=9000) == {
        "small": 100,
        "mid": 400,
        "large": 500,
    }
    each = Mixture(min_share={"*": 0.2, "b": 0.0}, epoch_tokens=1000)
    assert quotas(each, a=1, b=1, c=998) == {"a": 200, "b": 1, "c": 799}


def test_a_source_of_weight_0_has_no_floor_of_the_others() -> None:
    mixture = Mixture(weights={"a": 1, "b": 0}, min_share={"*": 0.1}, epoch_tokens=50)
    assert quotas(mixture, a=100, b=100) == {"a": 50, "b": 0}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"weights": {"a": 1}}, "no weight for dataset b; give each one"),
        (
            {"weights": {"a": 1, "b": 1, "c": 1}},
            "weight of c, but the episodes have no such dataset;.*a, b",
        ),
        ({"weights": {"a": 1, "*": 1}}, "a weight belongs to one source"),
        ({"min_share": {"x": 0.1}}, "min_share of x, but the episodes have no such dataset"),
        ({"max_share": {"x": 0.1}}, "max_share of x, but"),
        (
            {"weights": {"a": 0, "b": 1}, "min_share": {"a": 0.1}},
            "a has weight 0, and min_share 0.1 of an epoch of 900",
        ),
        (
            {"min_share": {"a": 0.7, "b": 0.6}, "epoch_tokens": 100},
            r"least shares add up to 130 tokens, an epoch has 100: a 70 \(min_share 0.7.*b 60",
        ),
        (
            {"max_repeats": 2, "epoch_tokens": 2001},
            r"2001 tokens cannot be filled: .* a 200 .*; b 1800 .*ask for at most 2000 epoch",
        ),
        (
            {"max_share": {"*": 0.3}},
            r"cannot be filled.*600 in all: a 300 \(max_share 0.3.*; raise .* max_share$",
        ),
        (
            {"min_share": {"a": 0.5}, "max_repeats": 1},
            r"a must give at least 500 .*0.5 of an epoch of 1000\) and at most 100 \(max_repeats 1",
        ),
        (
            {"min_share": {"a": 0.5}, "max_share": {"a": 0.4}},
            r"a must give at least 500 .* at most 400 \(max_share 0.4",
        ),
    ],
)
def test_what_cannot_be_met_is_named(options: dict[str, Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        quotas(Mixture(**options), a=100, b=900)


@given(
    tokens=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    tops=st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.7, 0.9, 1]), min_size=6, max_size=6),
    repeats=st.integers(1, 4),
)
def test_the_largest_epoch_that_is_named_can_be_filled_and_no_larger_one(
    tokens: list[int], tops: list[float], repeats: int
) -> None:
    named = {f"s{number}": count for number, count in enumerate(tokens)}
    options: dict[str, Any] = {
        "max_repeats": repeats,
        "max_share": dict(zip(named, tops, strict=False)),
    }
    with pytest.raises(PlanError, match="cannot be filled") as refused:
        quotas(Mixture(epoch_tokens=10**8, **options), **named)
    largest = re.search(r"ask for at most (\d+)", str(refused.value))
    if largest is None:
        assert sum(map(exact, options["max_share"].values())) < 1
        return
    epoch = int(largest[1])
    assert sum(quotas(Mixture(epoch_tokens=epoch, **options), **named).values()) == epoch
    with pytest.raises(PlanError, match="cannot be filled"):
        quotas(Mixture(epoch_tokens=epoch + 1, **options), **named)


def test_a_weight_of_a_source_without_spans() -> None:
    mixture = Mixture(weights={"a": 1, "b": 1})
    with pytest.raises(PlanError, match="b has a weight, but no span"):
        quotas(mixture, a=100, b=0)
    assert quotas(Mixture(temperature=3), a=100, b=0) == {"a": 100, "b": 0}


@st.composite
def ranges(draw: st.DrawFn) -> tuple[list[Fraction], list[Fraction], list[Fraction], int]:
    count = draw(st.integers(1, 8))
    weights = [Fraction(draw(st.integers(0, 1000)), 7) for _ in range(count)]
    least = [Fraction(draw(st.integers(0, 500))) if w else Fraction(0) for w in weights]
    most = [
        low + draw(st.integers(0, 500)) if w else low for w, low in zip(weights, least, strict=True)
    ]
    total = draw(st.integers(int(sum(least)), int(sum(most))))
    return weights, least, most, total


@given(ranges())
def test_filling_keeps_every_bound_and_the_proportions_between_them(
    case: tuple[list[Fraction], list[Fraction], list[Fraction], int],
) -> None:
    weights, least, most, total = case
    assume(any(weights))
    shares = fill(weights, least, most, total)
    assert sum(shares) == total
    assert all(low <= share <= high for low, share, high in zip(least, shares, most, strict=True))
    free = [
        share / weight
        for share, weight, low, high in zip(shares, weights, least, most, strict=True)
        if weight and low < share < high
    ]
    assert len(set(free)) <= 1
    # Who is at the most would otherwise get more than the free ones, who is at the least less.
    for x in free:
        for share, weight, low, high in zip(shares, weights, least, most, strict=True):
            assert not weight or share == min(max(x * weight, low), high)


@given(st.lists(st.fractions(0, 1000), min_size=1, max_size=20))
def test_rounding_keeps_the_sum_and_is_off_by_less_than_one(shares: list[Fraction]) -> None:
    total = math.ceil(sum(shares))
    assert_rounded([*shares, Fraction(total - sum(shares))], total)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), st.integers(1, 10**12))
def test_rounding_of_proportions(weights: list[int], total: int) -> None:
    assume(any(weights))
    assert_rounded([Fraction(total * w, sum(weights)) for w in weights], total)


def assert_rounded(shares: list[Fraction], total: int) -> None:
    whole = round_to_sum(shares, total)
    assert sum(whole) == total
    assert all(abs(number - share) < 1 for number, share in zip(whole, shares, strict=True))


def test_numbers_are_those_written() -> None:
    assert exact(0.7) == Fraction(7, 10)
    assert exact(1e-7) == Fraction(1, 10**7)
    assert exact(3) == 3
