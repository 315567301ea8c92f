"""Which samples stand for which steps; times are whole nanoseconds throughout."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.timed import QuaternionOrder

Int64s = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A sample for each step.

    Attributes:
        sample: int64 [T], number of the sample in the order of stamps; any where not valid.
        age_ns: int64 [T], step less stamp; negative where the sample is of the future; -1 where
            there is none.
        valid: bool [T].
    """

    sample: Int64s
    age_ns: Int64s
    valid: NDArray[np.bool_]


def in_order(stamps: Int64s) -> Int64s:
    """int64 [n], samples by ascending stamp; equal stamps stay in order of arrival."""
    return np.argsort(stamps, kind="stable")


def hold(stamps: Int64s, grid: Int64s, max_age_ns: int | None) -> Chosen:
    """The newest sample at or before each step; of equal stamps the last that arrived.

    Args:
        stamps: int64 [n], ascending.
        grid: int64 [T], the steps.
        max_age_ns: None for no limit.
    """
    sample = np.searchsorted(stamps, grid, side="right") - 1
    return _chosen(sample, sample >= 0, stamps, grid, max_age_ns)


def nearest(stamps: Int64s, grid: Int64s, max_age_ns: int | None) -> Chosen:
    """The sample nearest to each step, the earlier one of two that are as near."""
    before = np.searchsorted(stamps, grid, side="right") - 1
    after = np.minimum(before + 1, len(stamps) - 1)
    held = np.maximum(before, 0)
    later = (before < 0) | (abs(stamps[after] - grid) < abs(stamps[held] - grid))
    sample = np.where(later, after, held)
    return _chosen(sample, np.ones(len(grid), np.bool_), stamps, grid, max_age_ns)


def linear(
    values: NDArray[Any],
    stamps: Int64s,
    grid: Int64s,
    max_age_ns: int | None,
    quaternion: QuaternionOrder | None,
) -> tuple[NDArray[Any], Chosen]:
    """Values between the samples around each step; a step at a stamp has that sample's.

    A step counts where the sample before it and the one after it are both within `max_age_ns`.

    Args:
        values: [n, *shape] floats, in the order of stamps.
        stamps: int64 [n], ascending.
        grid: int64 [T].
        max_age_ns: None for no limit.
        quaternion: interpolate along the shorter arc (Shoemake, 1985); the order does not matter.
    """
    before = hold(stamps, grid, max_age_ns)
    first = np.maximum(before.sample, 0)
    second = np.minimum(first + 1, len(stamps) - 1)
    exact = before.valid & (before.age_ns == 0)
    ahead = stamps[second] - grid
    follows = (ahead >= 0) if max_age_ns is None else (ahead >= 0) & (ahead <= max_age_ns)
    valid = exact | (before.valid & follows)
    gap = np.maximum(stamps[second] - stamps[first], 1)
    share = np.where(exact, 0.0, np.clip((grid - stamps[first]) / gap, 0.0, 1.0))
    one, other = values[first], values[second]
    weight = share.reshape(-1, *[1] * (values.ndim - 1))
    mixed = _slerp(one, other, weight) if quaternion else one + (other - one) * weight
    chosen = Chosen(sample=before.sample, age_ns=before.age_ns, valid=valid)
    return mixed.astype(values.dtype, copy=False), chosen


def _chosen(
    sample: Int64s,
    there: NDArray[np.bool_],
    stamps: Int64s,
    grid: Int64s,
    max_age_ns: int | None,
) -> Chosen:
    sample = np.where(there, sample, 0)
    age = np.where(there, grid - stamps[sample], -1)
    valid = there if max_age_ns is None else there & (abs(age) <= max_age_ns)
    return Chosen(sample=sample, age_ns=age, valid=valid)


def _slerp(one: NDArray[Any], other: NDArray[Any], share: NDArray[Any]) -> NDArray[Any]:
    a, b = one.astype(np.float64), other.astype(np.float64)
    cosine = (a * b).sum(axis=1, keepdims=True)
    b = np.where(cosine < 0, -b, b)
    norms = np.linalg.norm(a, axis=1, keepdims=True) * np.linalg.norm(b, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        angle = np.arccos(np.clip(abs(cosine) / norms, 0.0, 1.0))
        sine = np.sin(angle)
        curved = (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / sine
    straight = a + (b - a) * share
    found = np.where(angle > 1e-6, curved, straight)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    wanted = np.linalg.norm(a, axis=1, keepdims=True)
    scaled: NDArray[Any] = found / np.where(length > 0, length, 1) * wanted
    return scaled
