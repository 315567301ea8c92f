"""The choices that, with the data, decide a plan to the last byte."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from packing.cost import DEFAULT_COST, CostModel
from packing.errors import PlanError

Packer = Literal["shuffle-fill", "bfd"]

TOKEN_MULTIPLE = 128
MAX_BUDGET = 1 << 24


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """How spans become packs and packs become steps.

    Attributes:
        budget_tokens: prefix and action tokens that a pack may hold; a multiple of 128, which is
            what FP8 matrix kernels and fixed-shape compilation ask for.
        slots_per_step: packs of one optimizer step over all ranks, S.
        epochs: passes over the spans, each freshly packed.
        seed: of every random choice.
        packer: `shuffle-fill` keeps the shuffled order and closes packs by best fit; `bfd` is the
            tighter global best-fit-decreasing, at the price of a length bias between packs.
        look_ahead: spans of the stream from which shuffle-fill closes a pack.
        open_runs: runs drawn from at the same time, or None to choose it from the size of a step
            (`packing.draw.enough_open_runs`); more is better shuffled, less is more local.
        run_length: windows in a row that are drawn from one run, about: a run is whole groups of
            pictures (see `packing.runs`). None for 8.
        lanes: parts of the stream, each of whose runs keeps to every lanes-th slot, so that a rank
            decodes it once; a divisor of `slots_per_step`, or None to choose it
            (`packing.lanes.choose_lanes`).
        balance_window_steps: steps among whose packs those of like cost are put together, or None
            for as many as the costs ask for (`packing.balance.enough_window_steps`).
        cost: what a pack costs to compute, by which ranks are balanced.
        max_images: cap on images in a pack, or None.
        max_action_queries: cap on action tokens in a pack, or None.
        max_spans: cap on spans in a pack, or None.
    """

    budget_tokens: int
    slots_per_step: int
    epochs: int = 1
    seed: int = 0
    packer: Packer = "shuffle-fill"
    look_ahead: int = 1024
    open_runs: int | None = None
    run_length: int | None = None
    lanes: int | None = None
    balance_window_steps: int | None = None
    cost: CostModel = DEFAULT_COST
    max_images: int | None = None
    max_action_queries: int | None = None
    max_spans: int | None = None

    def __post_init__(self) -> None:
        if self.budget_tokens <= 0 or self.budget_tokens % TOKEN_MULTIPLE:
            near = max(TOKEN_MULTIPLE, round(self.budget_tokens / TOKEN_MULTIPLE) * TOKEN_MULTIPLE)
            raise PlanError(
                f"budget of {self.budget_tokens} tokens is not a positive multiple of"
                f" {TOKEN_MULTIPLE}, which FP8 kernels need for their row count; use {near}"
            )
        if self.budget_tokens > MAX_BUDGET:
            raise PlanError(
                f"budget of {self.budget_tokens} tokens: at most {MAX_BUDGET}, so that"
                " cu_seqlens and sums over a pack stay far inside int32"
            )
        if self.packer not in {"shuffle-fill", "bfd"}:
            raise PlanError(f"unknown packer {self.packer!r}: use shuffle-fill or bfd")
        for name, value in asdict(self).items():
            if name in {"packer", "seed", "cost"} or value is None:
                continue
            if value < 1:
                raise PlanError(f"{name} must be at least 1, is {value}")
        if self.slots_per_step % (self.lanes or 1):
            raise PlanError(
                f"{self.lanes} lanes do not divide the {self.slots_per_step} slots of a step; take"
                " a divisor, best one that the numbers of ranks divide"
            )
        if not 0 <= self.seed < 1 << 63:
            raise PlanError(f"seed must be in [0, 2^63), is {self.seed}")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON, as a plan records them."""
        return cls(**{**raw, "cost": CostModel(**raw["cost"])})
