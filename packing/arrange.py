"""From spans to steps: drawn, packed, balanced, once per epoch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from packing.balance import balance, enough_window_steps, pack_costs
from packing.bounds import certify
from packing.certificate import Certificate
from packing.draw import LEAST_OPEN_RUNS, require_counts
from packing.errors import PackingError
from packing.histogram_bfd import histogram_bfd
from packing.lanes import choose_lanes, draw_lanes, lane_look_ahead
from packing.packs import Load, Packing, concatenate, loads_of
from packing.seeded import Indices
from packing.settings import PlanSettings
from packing.shuffle_fill import Filler, filler
from packing.spans import Int64s, Spans


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """All slots of all epochs in the order of consumption.

    Attributes:
        packing: one pack per slot, empty ones included; `items` are span ids.
        epoch: int64 [slots], epoch of each slot.
        certificate: of the epoch whose packs are the most over its own bound.
        settings: with every choice made that was left open.
    """

    packing: Packing
    epoch: Int64s
    certificate: Certificate
    settings: PlanSettings

    def span_slots(self) -> Int64s:
        """int64 [items]: the slot (row) of each planned occurrence."""
        return np.repeat(np.arange(len(self.packing)), self.packing.sizes)

    def epoch_bounds(self) -> Int64s:
        """int64 [epochs + 1]: where each epoch begins among the items of `packing`, and the end."""
        first_slot = np.searchsorted(self.epoch, np.arange(int(self.epoch[-1]) + 2))
        return self.packing.offsets[first_slot]


def arrange(
    spans: Spans,
    runs: Int64s,
    settings: PlanSettings,
    counts: Callable[[int], Int64s] | None = None,
) -> Arrangement:
    """Plan every epoch.

    Args:
        spans: the source spans, n > 0, none over a limit, none without a token.
        runs: int64 [n], which are drawn together (see `packing.runs`).
        settings: all choices.
        counts: epoch -> int64 [n], how often each span occurs in it; once each where None.

    Raises:
        PackingError: counts that are not such, or an epoch without a span.
    """
    loads = loads_of(spans, settings)
    epochs: list[Packing] = []
    certificates: list[Certificate] = []
    for epoch in range(settings.epochs):
        occurs = counts(epoch) if counts else None
        settings = _with_lanes(runs, loads, settings, occurs)
        orders = draw_lanes(runs, loads[0].per_span, settings, epoch, occurs)
        if not any(map(len, orders)):
            raise PackingError(
                f"epoch {epoch} has no span: every one has count 0; ask for more epoch_tokens, at"
                " least those of a run of spans"
            )
        fill = filler(sum(map(len, orders)))
        lanes = [_pack(order, loads, settings, epoch, fill) for order in orders]
        lane_packs = [len(lane) for lane in lanes]
        packing = concatenate(lanes)
        certificates.append(certify(loads, len(packing), occurs))
        cost = pack_costs(packing, spans, settings.cost)
        # Chosen in the first epoch: the costs of another are those of the same spans.
        window_steps = settings.balance_window_steps or enough_window_steps(
            cost, settings.slots_per_step, lane_packs
        )
        settings = replace(settings, balance_window_steps=window_steps)
        epochs.append(
            balance(
                packing,
                cost,
                slots=settings.slots_per_step,
                window_steps=window_steps,
                seed=settings.seed,
                epoch=epoch,
                lane_packs=lane_packs,
            )
        )
    return Arrangement(
        packing=concatenate(epochs),
        epoch=np.repeat(np.arange(settings.epochs), [len(packing) for packing in epochs]),
        certificate=max(certificates, key=lambda c: Fraction(c.packs, c.bound)),
        settings=settings,
    )


def _with_lanes(
    runs: Indices, loads: tuple[Load, ...], settings: PlanSettings, counts: Int64s | None
) -> PlanSettings:
    """The settings with open runs and lanes as they are chosen in the first epoch."""
    settings = replace(settings, open_runs=settings.open_runs or LEAST_OPEN_RUNS)
    if settings.lanes is not None:
        return settings
    # Nothing is shared where every span is a run of its own, nor where packs of spans that are
    # drawn together are strewn over the epoch.
    if int(runs[-1]) + 1 == len(runs) or settings.packer == "bfd":
        return replace(settings, lanes=1)
    tokens = loads[0].per_span.astype(np.int64)
    if counts is not None:
        require_counts(counts, runs)
        tokens *= counts
    total = int(tokens.sum())
    return replace(
        settings,
        lanes=choose_lanes(settings.slots_per_step, total // settings.budget_tokens),
    )


def _pack(
    order: Indices, loads: tuple[Load, ...], settings: PlanSettings, epoch: int, fill: Filler
) -> Packing:
    look_ahead = lane_look_ahead(settings.look_ahead, settings.lanes or 1)
    if settings.packer == "shuffle-fill":
        return fill(order, loads, look_ahead)
    packing = histogram_bfd(order, loads[0], settings.seed, epoch)
    over = np.zeros(len(packing), np.bool_)
    for load in loads[1:]:
        over |= packing.sum(load.per_span) > load.limit
    if not over.any():
        return packing
    # Best-fit decreasing knows tokens only: packs beyond a cap are taken apart and filled again.
    kept = packing.reorder(np.flatnonzero(~over))
    again = fill(packing.reorder(np.flatnonzero(over)).items, loads, look_ahead)
    return concatenate([kept, again])
