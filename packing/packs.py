"""Spans grouped into packs, and the loads and limits that a packer works with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError
from packing.seeded import Indices, chunks
from packing.settings import PlanSettings
from packing.spans import Int64s, Spans

PACKS_AT_ONCE: Final = 1 << 14
"""Packs whose items are worked on at a time, so that temporary arrays stay small."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """P packs over n spans.

    Attributes:
        items: int32 or int64 [n], span indices, pack after pack.
        offsets: int64 [P+1], where each pack begins in `items`.
    """

    items: Indices
    offsets: Int64s

    def __post_init__(self) -> None:
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.items):
            raise PackingError(
                f"packs end at {self.offsets[-1]}, there are {len(self.items)} items"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Int64s:
        """int64 [P]: spans in each pack."""
        return np.diff(self.offsets)

    def sum(self, values: NDArray[Any]) -> Int64s:
        """int64 [P]: the sum of a per-span value over each pack; 0 for an empty pack."""
        (sums,) = self._sums(values, powers=(1,))
        return sums

    def sum_of_squares(self, values: NDArray[Any]) -> Int64s:
        """int64 [P]: the sum of the square of a per-span value over each pack."""
        (squares,) = self._sums(values, powers=(2,))
        return squares

    def sum_and_squares(self, values: NDArray[Any]) -> tuple[Int64s, Int64s]:
        """int64 [P] each: the sum of a per-span value, and of its square, over each pack."""
        sums, squares = self._sums(values, powers=(1, 2))
        return sums, squares

    def _sums(self, values: NDArray[Any], powers: Sequence[int]) -> list[Int64s]:
        sums = [np.empty(len(self), np.int64) for _ in powers]
        for packs in chunks(len(self), PACKS_AT_ONCE):
            offsets = self.offsets[packs.start : packs.stop + 1]
            of_items = values[self.items[offsets[0] : offsets[-1]]].astype(np.int64)
            total = np.zeros(len(of_items) + 1, np.int64)
            for power, out in zip(powers, sums, strict=True):
                np.cumsum(of_items**power, out=total[1:])
                out[packs] = np.diff(total[offsets - offsets[0]])
        return sums

    def reorder(self, packs: Indices) -> "Packing":
        """These packs in another order; -1 stands for an empty pack."""
        sizes = np.where(packs < 0, 0, self.sizes[packs])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        items = np.empty(offsets[-1], self.items.dtype)
        for rows in chunks(len(packs), PACKS_AT_ONCE):
            begin, end = offsets[rows.start], offsets[rows.stop]
            shift = self.offsets[packs[rows]] - offsets[:-1][rows]
            items[begin:end] = self.items[np.arange(begin, end) + np.repeat(shift, sizes[rows])]
        return Packing(items=items, offsets=offsets)


def concatenate(packings: Sequence[Packing]) -> Packing:
    """The packs of several packings, one after the other."""
    if len(packings) == 1:
        return packings[0]
    offsets, before = [np.zeros(1, np.int64)], 0
    for packing in packings:
        offsets.append(packing.offsets[1:] + before)
        before += len(packing.items)
    return Packing(
        items=np.concatenate([packing.items for packing in packings]),
        offsets=np.concatenate(offsets),
    )


@dataclass(frozen=True, kw_only=True)
class Load:
    """One limited dimension: what each span brings, and what a pack may hold.

    Attributes:
        name: `tokens`, `images`, `action_queries` or `spans`.
        per_span: int32 or int64 [n].
        limit: the most in one pack.
    """

    name: str
    per_span: NDArray[Any]
    limit: int


def loads_of(spans: Spans, settings: PlanSettings) -> tuple[Load, ...]:
    """The limited dimensions of these spans, tokens first."""
    loads = [Load(name="tokens", per_span=spans.tokens, limit=settings.budget_tokens)]
    for name, values, limit in (
        ("images", spans.images, settings.max_images),
        ("action_queries", spans.action_tokens, settings.max_action_queries),
        ("spans", np.broadcast_to(np.int32(1), len(spans)), settings.max_spans),
    ):
        if limit is not None:
            loads.append(Load(name=name, per_span=values, limit=limit))
    return tuple(loads)
