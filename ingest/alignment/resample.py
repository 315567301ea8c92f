"""Which samples stand for which steps; times are whole nanoseconds throughout."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.rotation import slerp

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_SAMPLE_NS: Final = -(1 << 63)
"""The age of a step that has no sample, not even an old one."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A sample for each step.

    Attributes:
        sample: int64 [T], number of the sample in the order of stamps; any where not valid.
        age_ns: int64 [T], step less stamp, negative where the sample is of the future;
            NO_SAMPLE_NS where there is none.
        valid: bool [T], whether it is fresh enough.
    """

    sample: Int64s
    age_ns: Int64s
    valid: Bools


def last_arrivals(stamps: Int64s) -> Int64s:
    """int64 [m], samples by ascending stamp; of those with one stamp the last that arrived.

    Args:
        stamps: int64 [n] in order of arrival.
    """
    order: Int64s = np.argsort(stamps, kind="stable")
    moves = np.diff(stamps[order])
    return order[np.append(moves, 1) > 0]


def hold(stamps: Int64s, grid: Int64s, max_age_ns: int | None) -> Chosen:
    """The newest sample at or before each step.

    Args:
        stamps: int64 [n], n > 0, each greater than the one before.
        grid: int64 [T], the steps.
        max_age_ns: None for no limit.
    """
    before = np.searchsorted(stamps, grid, side="right") - 1
    sample, there = np.maximum(before, 0), before >= 0
    age = np.where(there, grid - stamps[sample], NO_SAMPLE_NS)
    return Chosen(sample=sample, age_ns=age, valid=there & _fresh(age, max_age_ns))


def nearest(stamps: Int64s, grid: Int64s, max_age_ns: int | None) -> Chosen:
    """The sample nearest to each step, the earlier one of two that are as near."""
    after = np.searchsorted(stamps, grid, side="left")
    later, earlier = np.minimum(after, len(stamps) - 1), np.maximum(after - 1, 0)
    is_later = abs(stamps[later] - grid) < abs(grid - stamps[earlier])
    sample = np.where(is_later, later, earlier)
    age = grid - stamps[sample]
    return Chosen(sample=sample, age_ns=age, valid=_fresh(abs(age), max_age_ns))


def linear(
    values: NDArray[Any],
    stamps: Int64s,
    grid: Int64s,
    max_age_ns: int | None,
    *,
    rotation: bool = False,
) -> tuple[NDArray[Any], Chosen]:
    """Values between the samples around each step; a step at a stamp has that sample's.

    A step counts where the sample before it and the one after it are both within `max_age_ns`.

    Args:
        values: [n, *shape] floats.
        stamps: int64 [n], n > 0, each greater than the one before.
        grid: int64 [T].
        max_age_ns: None for no limit.
        rotation: whether rows are quaternions, to be turned along the shorter arc.

    Returns:
        [T, *shape] of the dtype of `values`, any where not valid; and the samples before the
        steps, valid where the step counts.
    """
    before = hold(stamps, grid, max_age_ns)
    first, second = before.sample, np.minimum(before.sample + 1, len(stamps) - 1)
    exact = before.age_ns == 0
    ahead = stamps[second] - grid
    follows = (ahead >= 0) & _fresh(ahead, max_age_ns)
    valid = before.valid & (exact | follows)
    inside = valid & ~exact
    share = np.zeros(len(grid))
    np.divide(before.age_ns, stamps[second] - stamps[first], out=share, where=inside)
    found = values[first]
    one, other, share = found[inside], values[second[inside]], share[inside]
    mixed = slerp(one, other, share) if rotation else _between(one, other, share)
    found[inside] = mixed.astype(values.dtype)
    return found, Chosen(sample=first, age_ns=before.age_ns, valid=valid)


def _fresh(distance: Int64s, max_age_ns: int | None) -> Bools:
    return np.ones(len(distance), np.bool_) if max_age_ns is None else distance <= max_age_ns


def _between(
    one: NDArray[Any], other: NDArray[Any], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted sums that cannot overflow, and that keep what does not change as it is."""
    weight = share.reshape(-1, *[1] * (one.ndim - 1))
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):  # between infinities there is no number
        mixed: NDArray[np.float64] = np.where(a == b, a, a * (1 - weight) + b * weight)
    return mixed
