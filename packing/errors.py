"""Errors of packing."""

from lake.errors import HeadraceError


class PackingError(HeadraceError):
    """Spans cannot be made or packed as asked."""


class LayoutError(PackingError):
    """A token layout or tokenizer is not usable."""


class PlanError(PackingError):
    """A plan cannot be made, saved, found, or is not what its hash says."""
