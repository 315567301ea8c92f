"""What a pack costs to compute: the figure by which ranks are balanced.

A transformer's linear layers cost by the token, its attention by the square of each span's length,
its vision encoder by the image, launching kernels by the span and by the pack. A model of width d
spends 24 d^2 FLOPs per token and layer on linears and 4 d L on attention to L keys, hence the
default `tokens + sum(L^2) / (6 d)`; `headrace bench cost` measures the true weights on a device.

Weights are integers, for a plan must come out the same on every machine.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from packing.errors import PlanError

Int64s = NDArray[np.int64]

_WEIGHTS: Final = ("per_token", "per_square", "per_image", "per_span", "per_pack")
_REFERENCE_UNITS: Final = 1 << 36
_FILE_KIND: Final = "headrace-cost"
_FILE_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Integer weights in one unit, whatever it is; only their ratios matter.

    Attributes:
        per_token: of a prefix or action token.
        per_square: of a span's squared length, summed over the spans of a pack.
        per_image: of an image, beyond its tokens.
        per_span: of a span, whatever its length: nothing where one kernel takes all spans, as
            FlashAttention's does, and much where attention is called for each.
        per_pack: of a pack, whatever it holds.
    """

    per_token: int
    per_square: int
    per_image: int = 0
    per_span: int = 0
    per_pack: int = 0

    def __post_init__(self) -> None:
        for name in _WEIGHTS:
            weight: object = getattr(self, name)
            if type(weight) is not int or weight < 0:
                raise PlanError(f"cost: {name} must be a whole number, at least 0, is {weight!r}")
        if not self.per_token + self.per_square:
            raise PlanError("cost: per_token and per_square are both 0: spans would cost nothing")

    def __str__(self) -> str:
        """In words, such as `tokens + squared lengths / 6144 + 12 per span`."""
        if not self.per_token:
            return ", ".join(f"{name} {getattr(self, name)}" for name in _WEIGHTS)
        terms = ["tokens"]
        if self.per_square:
            terms.append(f"squared lengths / {self.per_token / self.per_square:.4g}")
        terms += [
            f"{weight / self.per_token:.3g} per {name}"
            for name in ("image", "span", "pack")
            if (weight := getattr(self, f"per_{name}"))
        ]
        return " + ".join(terms)

    @classmethod
    def of_width(cls, d_model: int) -> Self:
        """The cost `tokens + sum(L^2) / (6 d_model)`, in units of 1 / (6 d_model).

        Raises:
            PlanError: `d_model` is below 1.
        """
        if d_model < 1:
            raise PlanError(f"d_model must be at least 1, is {d_model}")
        return cls(per_token=6 * d_model, per_square=1)

    @classmethod
    def of_seconds(
        cls,
        *,
        per_token: float,
        per_square: float,
        per_image: float = 0.0,
        per_span: float = 0.0,
        per_pack: float = 0.0,
        reference_s: float,
    ) -> tuple[Self, float]:
        """Integer weights of measured ones, and the seconds of their unit.

        The unit is 2^-36 of `reference_s`, the seconds of a typical pack: rounding moves the cost
        of packs of up to 32768 tokens by less than a hundredth, which is less than a measurement
        tells, and 2^26 such packs still sum up inside int64.
        """
        unit_s = reference_s / _REFERENCE_UNITS
        seconds = (per_token, per_square, per_image, per_span, per_pack)
        weights = [round(value / unit_s) for value in seconds]
        # The smallest integers of the same ratios: a fit without a pack term needs no more digits.
        common = math.gcd(*weights) or 1
        return (
            cls(**{name: w // common for name, w in zip(_WEIGHTS, weights, strict=True)}),
            unit_s * common,
        )

    def units(
        self,
        tokens: NDArray[Any],
        sum_sq: NDArray[Any],
        images: NDArray[Any],
        spans: NDArray[Any],
    ) -> Int64s:
        """Cost of packs.

        Args:
            tokens: integers [P], of each pack.
            sum_sq: integers [P], sum of the squared lengths of its spans.
            images: integers [P].
            spans: integers [P], how many it holds.

        Returns:
            int64 [P], whose sum is inside int64 as well.

        Raises:
            PlanError: the sum of all costs would leave int64.
        """
        columns = (tokens, sum_sq, images, spans, np.ones(len(tokens), np.int64))
        weights = [getattr(self, name) for name in _WEIGHTS]
        total = sum(
            weight * float(column.sum(dtype=np.float64))
            for weight, column in zip(weights, columns, strict=True)
        )
        if total >= 1 << 62:  # half of int64: the float sum is good to far less than that
            raise PlanError(
                f"{len(tokens)} packs cost {total:.2g} units of {self!r}, which int64 cannot hold:"
                " divide the weights by a common number, or plan fewer epochs or episodes"
            )
        cost = np.zeros(len(tokens), np.int64)
        for weight, column in zip(weights, columns, strict=True):
            if weight:
                cost += column.astype(np.int64) * np.int64(weight)
        return cost


DEFAULT_COST: Final = CostModel.of_width(1024)


@dataclass(frozen=True, kw_only=True)
class MeasuredCost:
    """A cost model with where it was measured: the JSON file of `headrace bench cost`.

    Attributes:
        cost: the weights.
        unit_s: seconds of one unit.
        relative_error: root mean square of (fit - measured) / measured over the packs fitted.
        check_error: the same over packs of mixed lengths that were not fitted, the kind that a
            plan holds.
        measured: device, dtype, attention backend, model dimensions, versions, for the reader.
    """

    cost: CostModel
    unit_s: float
    relative_error: float
    check_error: float
    measured: Mapping[str, str | int | float] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all.

        Raises:
            PlanError: it cannot be written.
        """
        document = {"kind": _FILE_KIND, "version": _FILE_VERSION, **asdict(self)}
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", "utf-8")
            partial.replace(path)
        except OSError as error:
            raise PlanError(f"{path}: cannot be written: {error}") from error

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote.

        Raises:
            PlanError: the file cannot be read, or is not such a file; names it.
        """
        try:
            raw: Any = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise PlanError(f"{path}: cannot be read: {error}") from error
        hint = "make one with `headrace bench cost --out FILE`"
        if not isinstance(raw, dict) or raw.pop("kind", None) != _FILE_KIND:
            raise PlanError(f"{path}: not a cost file; {hint}")
        if (version := raw.pop("version", None)) != _FILE_VERSION:
            raise PlanError(
                f"{path}: version {version}, this Headrace reads {_FILE_VERSION}; {hint}"
            )
        try:
            return cls(**{**raw, "cost": CostModel(**raw["cost"])})
        except (KeyError, TypeError, PlanError) as error:
            raise PlanError(f"{path}: not a cost file ({error}); {hint}") from error
