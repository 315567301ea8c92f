"""How a proof tells how far it is."""

from typing import Protocol


class Progress(Protocol):
    """Called with what is done of how much."""

    def __call__(self, done: int, total: int, /) -> None:
        """Tell."""


def silent(done: int, total: int, /) -> None:
    """Tell nobody."""
