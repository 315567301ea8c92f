"""Which request fails, and how: drawn from a seed, whatever the order in which requests come."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import xxhash

from lake.errors import HeadraceError

Kind = Literal["slow_down", "reset", "cut", "truncate", "flip", "slow", "stall", "lose_reply"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class FaultError(HeadraceError):
    """A fault that cannot be injected as asked."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of fault and the requests that it meets.

    Attributes:
        kind: `slow_down` answers 503 without asking the store; `reset` resets the connection before
            the store is asked; `cut` resets it within the reply's body; `truncate` closes it
            there, in good order; `flip` turns one bit of the body; `slow` spreads the body over
            `hold_s`; `stall` holds the request for `hold_s`, or until released; `lose_reply` lets
            the store do it and resets the connection without a reply.
        rate: share of the requests that it meets.
        path: regular expression, searched in the path (`/bucket/key`) of the request.
        methods: that it meets; any where empty.
        most: how often at most, None for no limit.
        hold_s: of `slow` and `stall`; None holds a stalled request until it is released.

    Raises:
        FaultError: these values make no sense.
    """

    kind: Kind
    rate: float = 1.0
    path: str = ""
    methods: tuple[str, ...] = ()
    most: int | None = None
    hold_s: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FaultError(f"fault {self.kind!r}: use one of {', '.join(KINDS)}")
        if not 0 <= self.rate <= 1:
            raise FaultError(f"fault {self.kind}: a rate of {self.rate} is not within [0, 1]")
        if self.kind == "slow" and self.hold_s is None:
            raise FaultError("fault slow: say over how many seconds, with hold_s")
        try:
            re.compile(self.path)
        except re.error as error:
            raise FaultError(f"fault {self.kind}: path {self.path!r}: {error}") from error

    def meets(self, method: str, path: str) -> bool:
        """Whether it may befall a request."""
        return (not self.methods or method in self.methods) and bool(re.search(self.path, path))


class FaultDraw:
    """Draws the fault of each request; not safe to share between threads.

    The draw depends on the seed, the request (method, path, range of bytes) and how often the same
    one came before: a repeated request has new luck, and the order of others does not matter.
    """

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self._faults = tuple(faults)
        self._seed = seed
        self._seen: dict[str, int] = {}
        self._left = [fault.most for fault in faults]

    def draw(self, method: str, path: str, byte_range: str) -> Fault | None:
        """The first fault that befalls a request, None for none."""
        if not self._faults:
            return None
        request = f"{method} {path} {byte_range}"
        time = self._seen.get(request, 0)
        self._seen[request] = time + 1
        for number, fault in enumerate(self._faults):
            luck = chance(self._seed, number, time, request)
            if self._left[number] == 0 or not fault.meets(method, path) or luck >= fault.rate:
                continue
            left = self._left[number]
            self._left[number] = None if left is None else left - 1
            return fault
        return None


def chance(seed: int, number: int, time: int, what: str) -> float:
    """Uniform in [0, 1), a function of its arguments."""
    return xxhash.xxh64_intdigest(f"{seed} {number} {time} {what}".encode()) / 2**64
