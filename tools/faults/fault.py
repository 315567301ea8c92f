"""Which request fails, and how: drawn from a seed."""

import re
from collections import Counter
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
        per_request: how often at most the same request is met; with 1 asking again always helps.
        hold_s: of `slow` and `stall`; None holds a stalled request until it is released.

    Raises:
        FaultError: these values make no sense.
    """

    kind: Kind
    rate: float = 1.0
    path: str = ""
    methods: tuple[str, ...] = ()
    most: int | None = None
    per_request: int | None = None
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

    Of the requests that a fault may meet, which it meets depends on the seed alone: the third, say,
    whatever it is for. So as many are met in every run, though names of files are random.
    """

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self._faults = tuple(faults)
        self._seed = seed
        self._seen: Counter[int] = Counter()
        self._met: Counter[int] = Counter()
        self._met_by: Counter[tuple[int, str]] = Counter()

    def draw(self, method: str, path: str, byte_range: str = "") -> tuple[Fault, float] | None:
        """The first fault that befalls a request, and where in it, in [0, 1); None for none."""
        request = f"{method} {path} {byte_range}"
        for number, fault in enumerate(self._faults):
            if not fault.meets(method, path):
                continue
            self._seen[number] += 1
            if (
                _below(self._met[number], fault.most)
                and _below(self._met_by[number, request], fault.per_request)
                and chance(self._seed, number, self._seen[number]) < fault.rate
            ):
                self._met[number] += 1
                self._met_by[number, request] += 1
                return fault, chance(self._seed, number, -self._seen[number])
        return None


def _below(count: int, most: int | None) -> bool:
    return most is None or count < most


def chance(seed: int, *what: int) -> float:
    """Uniform in [0, 1), a function of its arguments."""
    return xxhash.xxh64_intdigest(" ".join(map(str, (seed, *what))).encode()) / 2**64
