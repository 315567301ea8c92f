"""A mixture: how many tokens of an epoch come from which source.

Shares are shares of tokens, for tokens are what a step costs and what a loss is taken over. They
are fixed weights, or follow the sources' own sizes with a temperature, as data sets of many
languages are mixed (A. Conneau and G. Lample, "Cross-lingual language model pretraining", NeurIPS
2019): share ~ tokens^(1/T), so 1 is as recorded and more is flatter.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, Final, Literal, Self, get_args

from packing.errors import PlanError

Over = Literal["dataset", "embodiment", "selection"]
Per = Literal["step", "episode"]

EACH_OTHER: Final = "*"
"""In `min_share` and `max_share`: every source that is not named."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How an epoch is drawn from its sources. Frozen, and part of the plan's hash.

    Attributes:
        over: what a source is: a dataset, an embodiment, or a selection by its name.
        selections: names of the selections, which then are the plan's episodes; an episode in two
            of them is refused. Empty unless `over` is "selection".
        weights: source -> weight, for every source; shares are the weights over their sum, and 0
            leaves a source out. None for shares by temperature.
        temperature: share ~ tokens^(1/temperature); None (with no weights either) means 1.
        epoch_tokens: tokens of an epoch; None for those of all source spans together that have a
            share at all.
        max_repeats: no span more often than this in an epoch; what a source may not give for it,
            the others give in proportion to their shares.
        min_share, max_share: source -> the least and the most of an epoch's tokens, `*` for every
            source not named; the others give or take in proportion.
        per: "step" for equal chances of all spans of a source, "episode" for an equal share of all
            episodes of a source, however long.

    Raises:
        PlanError: options that contradict each other, or are out of range.
    """

    over: Over = "dataset"
    selections: tuple[str, ...] = ()
    weights: Mapping[str, float] | None = None
    temperature: float | None = None
    epoch_tokens: int | None = None
    max_repeats: int | None = None
    min_share: Mapping[str, float] = field(default_factory=dict)
    max_share: Mapping[str, float] = field(default_factory=dict)
    per: Per = "step"

    def __post_init__(self) -> None:
        for name, known in (("over", Over), ("per", Per)):
            if getattr(self, name) not in get_args(known):
                options = ", ".join(get_args(known))
                raise PlanError(
                    f"mixture: {name} is {getattr(self, name)!r}; choose from {options}"
                )
        if bool(self.selections) != (self.over == "selection"):
            raise PlanError(
                f"mixture over {self.over}: "
                + (
                    "name the selections to mix"
                    if self.over == "selection"
                    else "selections are not its sources; mix over selection, or leave them out"
                )
            )
        if len(set(self.selections)) != len(self.selections):
            raise PlanError("mixture: a selection is named twice")
        if self.weights is not None and self.temperature is not None:
            raise PlanError(
                "mixture: weights and temperature are both given; the one is fixed shares, the"
                " other shares that follow the sources' sizes"
            )
        self._as_floats()
        self._check_numbers()

    def _as_floats(self) -> None:
        """1 and 1.0 are one mixture, and have one hash."""
        for name in ("weights", "min_share", "max_share"):
            given = getattr(self, name)
            if given is None:
                continue
            if not isinstance(given, Mapping):
                raise PlanError(f"mixture: {name} is {given!r}; give a number for each source")
            shares = {source: _number(f"{name} of {source}", v) for source, v in given.items()}
            object.__setattr__(self, name, shares)
        if self.temperature is not None:
            object.__setattr__(self, "temperature", _number("temperature", self.temperature))

    def _check_numbers(self) -> None:
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise PlanError(f"mixture: temperature must be above 0, is {self.temperature}")
        for name in ("epoch_tokens", "max_repeats"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, float) or value < 1):
                raise PlanError(f"mixture: {name} must be a whole number from 1 on, is {value}")
        weights = self.weights or {}
        for source, weight in weights.items():
            if not 0 <= weight < math.inf:
                raise PlanError(f"mixture: weight of {source} must be at least 0, is {weight}")
        if self.weights is not None and not any(weights.values()):
            raise PlanError("mixture: no source has a weight above 0")
        for name in ("min_share", "max_share"):
            for source, share in getattr(self, name).items():
                if not 0 <= share <= 1:
                    raise PlanError(
                        f"mixture: {name} of {source} must be from 0 to 1, is {share}: shares are"
                        " of an epoch's tokens"
                    )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON.

        Raises:
            PlanError: not a mixture.
        """
        unknown = set(raw) - {known.name for known in fields(cls)}
        if unknown:
            raise PlanError(
                f"mixture: unknown {', '.join(sorted(unknown))}; there are"
                f" {', '.join(known.name for known in fields(cls))}"
            )
        values = {**raw, "selections": tuple(raw.get("selections") or ())}
        tokens = raw.get("epoch_tokens")
        if isinstance(tokens, float) and tokens.is_integer():  # 1e9 is a float in JSON
            values["epoch_tokens"] = int(tokens)
        try:
            return cls(**values)
        except (TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"mixture: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From a JSON object with any of the attributes.

        Raises:
            PlanError: not a mixture.
        """
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise PlanError(f"mixture: not JSON: {error}") from error
        if not isinstance(raw, dict):
            raise PlanError(f"mixture: a JSON object is needed, this is {type(raw).__name__}")
        return cls.from_dict(raw)


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PlanError(f"mixture: {what} is {value!r}, which is no number")
    return float(value)


@dataclass(frozen=True, kw_only=True)
class MixtureSource:
    """One source of a mixture, as it was found.

    Attributes:
        name: of the dataset, embodiment or selection.
        selection_hash: of the selection, or None.
        episodes: episodes of which spans were made.
        spans: source spans.
        tokens: of all its spans.
        epoch_tokens: tokens that an epoch takes of it, to within one run of spans.
    """

    name: str
    selection_hash: str | None = None
    episodes: int
    spans: int
    tokens: int
    epoch_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class PlannedMixture:
    """A mixture with the sources that it was applied to: what a plan records."""

    asked: Mixture
    sources: tuple[MixtureSource, ...]

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON."""
        return cls(
            asked=Mixture.from_dict(raw["asked"]),
            sources=tuple(MixtureSource(**source) for source in raw["sources"]),
        )
