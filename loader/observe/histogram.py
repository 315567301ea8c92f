"""Durations in buckets of equal ratio: a few dozen integers that give quantiles and add up.

Eight buckets per doubling, from a microsecond on, so a quantile is at most 4.5 % off and two
histograms merge by adding counts. The idea is that of HdrHistogram (G. Tene) and DDSketch (Masson,
Rim, Lee, VLDB 2019).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from loader.errors import LoaderError

_SMALLEST_S: Final = 1e-6
_PER_DOUBLING: Final = 8


@dataclass(kw_only=True)
class Histogram:
    """How often each duration occurred.

    Attributes:
        buckets: number of a bucket -> durations in it; bucket i holds [1 us * 2^(i/8),
            1 us * 2^((i+1)/8)), bucket 0 also all below.
        total_s: their exact sum in seconds.
    """

    buckets: Counter[int] = field(default_factory=Counter)
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """Durations recorded."""
        return self.buckets.total()

    def add(self, seconds: float) -> None:
        """Record a duration."""
        ratio = seconds / _SMALLEST_S
        self.buckets[int(math.log2(ratio) * _PER_DOUBLING) if ratio > 1 else 0] += 1
        self.total_s += seconds

    def merge(self, other: "Histogram") -> None:
        """Add what another histogram has recorded."""
        self.buckets.update(other.buckets)
        self.total_s += other.total_s

    def since(self, earlier: "Histogram") -> "Histogram":
        """What was recorded after `earlier`, a copy of this one."""
        return Histogram(
            buckets=self.buckets - earlier.buckets, total_s=self.total_s - earlier.total_s
        )

    def copy(self) -> "Histogram":
        """One of its own, with the same durations."""
        return Histogram(buckets=self.buckets.copy(), total_s=self.total_s)

    def quantile_s(self, share: float) -> float:
        """The duration in seconds below which this share of them lies (nearest rank); 0 for none.

        Raises:
            LoaderError: the share is not in [0, 1].
        """
        if not 0 <= share <= 1:
            raise LoaderError(f"quantile {share}: must be in [0, 1]")
        rank = max(math.ceil(share * self.count), 1)
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return _SMALLEST_S * 2 ** ((bucket + 0.5) / _PER_DOUBLING)
        return 0.0

    def to_message(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"total_s": self.total_s, "buckets": list(self.buckets.items())}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Inverse of `to_message`."""
        return cls(buckets=Counter(dict(message["buckets"])), total_s=message["total_s"])
