"""How a saved plan is read: at once, or by someone who repeats what failed in passing."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Reading(Protocol):
    """Takes what names a read, and the read, which it may repeat where it failed in passing."""

    def __call__(self, what: Callable[[], str], read: Callable[[], T], /) -> T:
        """What `read` gives; raises as it does."""
        ...


def read_once(_: Callable[[], str], read: Callable[[], T]) -> T:
    """Call `read`, whatever comes of it."""
    return read()
