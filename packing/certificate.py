"""The certificate of a plan: how many packs it uses, and how few any plan could."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Packs used over a proven lower bound, per epoch.

    Attributes:
        packs: non-empty packs of one epoch (the most over the epochs).
        bound: no packing of these spans into packs of this budget and these caps uses fewer.
        binding: the dimension whose bound is the largest: `tokens`, `images`, `action_queries` or
            `spans`.
        bounds: the bound of every dimension that has a limit.
    """

    packs: int
    bound: int
    binding: str
    bounds: dict[str, int]

    @property
    def packs_over_bound(self) -> float:
        """1.0 is proven optimal."""
        return self.packs / self.bound
