"""From shares to whole tokens: how much of an epoch each source of a mixture gives.

A share that a cap forbids goes to the others in proportion to their weights, and so on until
nobody is over: the tokens of source s are clamp(x * weight_s, least_s, most_s) with the one x for
which they add up. All is exact (fractions of integers), hence the same on every machine.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

from packing.errors import PlanError
from packing.mixture import EACH_OTHER, Mixture, MixtureSource, PlannedMixture

_DIGITS: Final = 50


def plan_mixture(mixture: Mixture, sources: Sequence[MixtureSource]) -> PlannedMixture:
    """Give each source its tokens of an epoch.

    Args:
        mixture: what is asked.
        sources: what there is; their `epoch_tokens` are not read.

    Raises:
        PlanError: a source is not named, or does not exist, or numbers that cannot be met together.
    """
    _require_known(mixture, sources)
    weights = _weights(mixture, sources)
    total = mixture.epoch_tokens or sum(
        source.tokens for source, weight in zip(sources, weights, strict=True) if weight
    )
    ranges = [
        _range(mixture, source, weight, total)
        for source, weight in zip(sources, weights, strict=True)
    ]
    _require_room(ranges, total)
    shares = fill(weights, [r.least for r in ranges], [r.most for r in ranges], total)
    return PlannedMixture(
        asked=mixture,
        sources=tuple(
            replace(source, epoch_tokens=tokens)
            for source, tokens in zip(sources, round_to_sum(shares, total), strict=True)
        ),
    )


def wished_shares(mixture: Mixture, sources: Sequence[MixtureSource]) -> list[Fraction]:
    """Share of each source by its weight or temperature alone, before caps and floors."""
    weights = _weights(mixture, sources)
    return [weight / sum(weights) for weight in weights]


def fill(
    weights: Sequence[Fraction], least: Sequence[Fraction], most: Sequence[Fraction], total: int
) -> list[Fraction]:
    """clamp(x * weight, least, most) for the x with which they add up to `total`.

    Args:
        weights: at least 0; a source of weight 0 stays at its least.
        least: of each.
        most: of each, not below its least.
        total: between the sums of `least` and `most` (over weights above 0).
    """

    def at(x: Fraction) -> list[Fraction]:
        return [
            min(max(x * weight, low), high) if weight else low
            for weight, low, high in zip(weights, least, most, strict=True)
        ]

    # Between two neighbouring corners the sum grows in a straight line.
    corners = sorted(
        {Fraction(0)}
        | {
            corner / weight
            for weight, low, high in zip(weights, least, most, strict=True)
            if weight
            for corner in (low, high)
        }
    )
    below, above = 0, len(corners) - 1
    while above - below > 1:
        middle = (below + above) // 2
        if sum(at(corners[middle])) >= total:
            above = middle
        else:
            below = middle
    first, last = sum(at(corners[below])), sum(at(corners[above]))
    if first == last:
        return at(corners[above])
    step = (corners[above] - corners[below]) * (total - first) / (last - first)
    return at(corners[below] + step)


def round_to_sum(shares: Sequence[Fraction], total: int) -> list[int]:
    """Round down, and give what is lacking to the largest remainders, the first of equals."""
    whole = [math.floor(share) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda number: whole[number] - shares[number])
    for number in by_rest[: total - sum(whole)]:
        whole[number] += 1
    return whole


def exact(number: float) -> Fraction:
    """A number as it is written in decimals: 0.7 is 7/10, and not the float next to it."""
    return Fraction(str(number))


def _weights(mixture: Mixture, sources: Sequence[MixtureSource]) -> list[Fraction]:
    if mixture.weights is not None:
        return [exact(mixture.weights[source.name]) for source in sources]
    temperature = mixture.temperature or 1
    if temperature == 1:
        return [Fraction(source.tokens) for source in sources]
    with localcontext() as context:
        # Logarithm and exponential of `decimal` are correctly rounded: alike on every machine.
        context.prec = _DIGITS
        return [
            Fraction((Decimal(source.tokens).ln() / Decimal(str(temperature))).exp())
            if source.tokens
            else Fraction(0)
            for source in sources
        ]


@dataclass(frozen=True, kw_only=True)
class _Range:
    """The least and the most tokens of a source in an epoch, and why.

    The most is a share of the epoch or, where repeats are bounded, what the source has of them.
    """

    name: str
    least: Fraction
    most: Fraction
    why_least: str
    why_most: str
    max_share: Fraction
    supply: Fraction | None


def _range(mixture: Mixture, source: MixtureSource, weight: Fraction, total: int) -> _Range:
    least = total * exact(_of(mixture.min_share, source.name, 0))
    most = Fraction(total)
    why_least = f"min_share {float(least / total):g} of an epoch of {total}"
    why_most = "the whole epoch"
    top = exact(_of(mixture.max_share, source.name, 1))
    if top < 1:
        most = total * top
        why_most = f"max_share {float(top):g} of an epoch of {total}"
    supply = None if mixture.max_repeats is None else Fraction(mixture.max_repeats * source.tokens)
    if supply is not None and supply < most:
        most = supply
        why_most = f"max_repeats {mixture.max_repeats} times its {source.tokens} tokens"
    if not weight:
        if least and source.name in mixture.min_share:
            raise PlanError(f"mixture: {source.name} has weight 0, and {why_least}")
        least = most = top = Fraction(0)
    if least > most:
        raise PlanError(
            f"mixture: {source.name} must give at least {_count(least)} tokens ({why_least}) and at"
            f" most {_count(most)} ({why_most})"
        )
    return _Range(
        name=source.name,
        least=least,
        most=most,
        why_least=why_least,
        why_most=why_most,
        max_share=top,
        supply=supply,
    )


def _of(shares: Mapping[str, float], name: str, otherwise: float) -> float:
    return shares.get(name, shares.get(EACH_OTHER, otherwise))


def _count(tokens: Fraction) -> str:
    return str(round(tokens))


def _require_known(mixture: Mixture, sources: Sequence[MixtureSource]) -> None:
    names = {source.name for source in sources}
    listed = ", ".join(sorted(names))
    for what, given in (
        ("weight", mixture.weights or {}),
        ("min_share", mixture.min_share),
        ("max_share", mixture.max_share),
    ):
        unknown = sorted(set(given) - names - {EACH_OTHER})
        if what == "weight" and EACH_OTHER in given:
            raise PlanError("mixture: a weight belongs to one source; name each")
        if unknown:
            raise PlanError(
                f"mixture: {what} of {', '.join(unknown)}, but the episodes have no such"
                f" {mixture.over}; they have: {listed}"
            )
    if mixture.weights is not None:
        if lacking := sorted(names - set(mixture.weights)):
            raise PlanError(
                f"mixture: no weight for {mixture.over} {', '.join(lacking)}; give each one (0"
                " leaves it out)"
            )
        blank = [s.name for s in sources if mixture.weights[s.name] and not s.tokens]
        if blank:
            raise PlanError(
                f"mixture: {', '.join(blank)} has a weight, but no span: all its steps were"
                " refused; give it weight 0 or leave it out"
            )


def _require_room(ranges: Sequence[_Range], total: int) -> None:
    least, most = sum(r.least for r in ranges), sum(r.most for r in ranges)
    if least > total:
        floors = "; ".join(f"{r.name} {_count(r.least)} ({r.why_least})" for r in ranges if r.least)
        raise PlanError(
            f"mixture: the least shares add up to {_count(Fraction(least))} tokens, an epoch has"
            f" {total}: {floors}"
        )
    if most < total:
        caps = "; ".join(f"{r.name} {_count(r.most)} ({r.why_most})" for r in ranges if r.most)
        largest = _largest_epoch(ranges, total)
        instead = f", or ask for at most {largest} epoch_tokens" if largest else ""
        raise PlanError(
            f"mixture: an epoch of {total} tokens cannot be filled: the sources may give"
            f" {_count(Fraction(most))} in all: {caps}; raise max_repeats or max_share{instead}"
        )


def _largest_epoch(ranges: Sequence[_Range], total: int) -> int:
    """The most tokens of an epoch that caps can fill: the x of sum(min(share * x, supply)) = x.

    A smaller epoch lowers what shares of it allow. The sum is concave in x and below x at `total`,
    so that Newton's steps come down to the largest x, one corner at least at a time.
    """
    epoch = Fraction(total)
    while True:
        supplied = [
            r.supply for r in ranges if r.supply is not None and r.supply <= r.max_share * epoch
        ]
        shared = [r.max_share for r in ranges if r.supply is None or r.supply > r.max_share * epoch]
        found = sum(supplied, Fraction(0)) / (1 - sum(shared, Fraction(0)))
        if found == epoch:
            return math.floor(epoch)
        epoch = found
