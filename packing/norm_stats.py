"""Normalisation statistics of a selection, merged from the lake's per-episode statistics."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class NormStats:
    """Statistics of one feature of one spec over all valid steps of the selected episodes.

    Attributes:
        spec_id, feature: what of.
        count: valid steps.
        mean, std, min, max: one number per flattened element, float64; `std` is the population's.
            Empty where the lake holds no valid step.
    """

    spec_id: str
    feature: str
    count: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    min: tuple[float, ...]
    max: tuple[float, ...]

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From parsed JSON."""
        return cls(
            spec_id=raw["spec_id"],
            feature=raw["feature"],
            count=raw["count"],
            mean=tuple(raw["mean"]),
            std=tuple(raw["std"]),
            min=tuple(raw["min"]),
            max=tuple(raw["max"]),
        )
