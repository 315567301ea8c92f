"""Spans grouped into packs, and the loads and limits that a packer works with."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError
from packing.settings import PlanSettings
from packing.spans import Int64s, Spans


@dataclass(frozen=True, kw_only=True)
class Packing:
    """P packs over n spans.

    Attributes:
        items: int64 [n], span indices, pack after pack.
        offsets: int64 [P+1], where each pack begins in `items`.
    """

    items: Int64s
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
        total = np.zeros(len(self.items) + 1, np.int64)
        np.cumsum(values[self.items], dtype=np.int64, out=total[1:])
        return np.asarray(np.diff(total[self.offsets]))

    def reorder(self, packs: Int64s) -> "Packing":
        """These packs in another order; -1 stands for an empty pack."""
        sizes = np.where(packs < 0, 0, self.sizes[packs])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        nth = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        return Packing(
            items=self.items[np.repeat(self.offsets[packs], sizes) + nth], offsets=offsets
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
        ("spans", np.ones(len(spans), np.int32), settings.max_spans),
    ):
        if limit is not None:
            loads.append(Load(name=name, per_span=values, limit=limit))
    return tuple(loads)
