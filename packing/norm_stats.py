"""Normalisation statistics of a selection, merged from the lake's per-episode statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.feature_stats import QUANTILES, FeatureStats, combine
from lake.store import Lake
from packing.errors import PlanError

_COLUMNS: Final = ("count", "invalid", "min", "max", "mean", "m2", "sketch")


@dataclass(frozen=True, kw_only=True)
class NormStats:
    """Statistics of one feature of one spec over all valid steps of the selected episodes.

    `mean`, `std`, `q01` and `q99` are rounded to float32, in which they are used: so the last bit
    of a sum, which may differ between machines, does not make another plan.

    Attributes:
        spec_id, feature: what of.
        count: steps counted: valid, and finite in every element.
        mean, std, min, max, q01, q99: one number per flattened element; `std` is the
            population's, `q01` and `q99` are close, not exact (see `lake.feature_stats`).
    """

    spec_id: str
    feature: str
    count: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    min: tuple[float, ...]
    max: tuple[float, ...]
    q01: tuple[float, ...]
    q99: tuple[float, ...]

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From parsed JSON."""
        arrays = {name: tuple(value) for name, value in raw.items() if isinstance(value, list)}
        return cls(**{**raw, **arrays})


def merge_stats(
    lake: Lake, spec_id: str, features: Sequence[str], episode_ids: Sequence[str]
) -> list[NormStats]:
    """Merge the statistics of some features over episodes of one spec.

    Args:
        lake: pinned to the versions of the plan.
        spec_id: spec of all the episodes.
        features: names; each must have statistics for every episode.
        episode_ids: the episodes, sorted (the order of the sums is theirs).

    Raises:
        PlanError: statistics are missing, nothing was counted, or values exceed float32.
    """
    if not features:
        return []
    wanted = pa.array(episode_ids, pa.string())
    with lake.errors_named("read statistics"):
        names = ", ".join("'" + name + "'" for name in features)  # [a-z0-9_] only
        table = lake.dataset("stats").to_table(
            columns=["episode_id", "feature", *_COLUMNS],
            filter=f"spec_id = '{spec_id}' AND feature IN ({names})",
        )
    table = table.filter(pc.is_in(table["episode_id"], value_set=wanted)).sort_by("episode_id")
    return [
        _merged(lake, spec_id, name, table.filter(pc.equal(table["feature"], name)), episode_ids)
        for name in features
    ]


def _merged(
    lake: Lake, spec_id: str, feature: str, rows: pa.Table, episode_ids: Sequence[str]
) -> NormStats:
    if rows["episode_id"].to_pylist() != list(episode_ids):
        missing = sorted(set(episode_ids) - set(rows["episode_id"].to_pylist()))
        raise PlanError(
            f"{lake.uri}: no statistics of {feature} for {len(missing)} of {len(episode_ids)}"
            f" episodes, first {missing[:1]}; ingest these episodes again into a new lake"
        )
    total = combine([_stats(row) for row in rows.select(list(_COLUMNS)).to_pylist()])
    if not total.count:
        raise PlanError(
            f"{feature} of spec {spec_id} has no step that is valid and finite in any of the"
            f" {len(episode_ids)} selected episodes: nothing to normalise by; choose another"
            " feature or other episodes"
        )
    largest = max(float(np.abs(total.min).max()), float(np.abs(total.max).max()))
    if largest > float(np.finfo(np.float32).max):
        raise PlanError(
            f"{feature} of spec {spec_id} has values up to {largest:.3g}, which float32, in which"
            " batches hold them, cannot tell from infinity; choose another feature or leave out the"
            " episodes (the catalog's table `features` has their extremes)"
        )
    return NormStats(
        spec_id=spec_id,
        feature=feature,
        count=total.count,
        mean=_float32(total.mean),
        std=_float32(total.std),
        min=tuple(total.min.tolist()),
        max=tuple(total.max.tolist()),
        q01=_float32(total.q01),
        q99=_float32(total.q99),
    )


def _stats(row: dict[str, Any]) -> FeatureStats:
    arrays = {name: np.asarray(row[name], np.float64) for name in ("min", "max", "mean", "m2")}
    return FeatureStats(
        count=row["count"],
        invalid=row["invalid"],
        **arrays,
        quantiles=np.asarray(row["sketch"], np.float64).reshape(len(QUANTILES), -1),
    )


def _float32(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(values.astype(np.float32).astype(np.float64).tolist())
