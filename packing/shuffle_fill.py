"""Shuffle-fill: packs filled in stream order and closed by best fit.

A window of the next `look_ahead` spans of the shuffled stream is kept. A pack begins with the
oldest span and takes the next oldest again and again; when the one after the next would not fit any
more, the pack is closed by whichever of two ways leaves less room: take the next and then close, or
close at once. To close is to take the largest span that fits until none does, but, while the pack
has two spans fewer than a full pack of mean spans, the largest span of at most an even share of the
room, if that has at least half of this share: so packs that began with long spans end with short
ones. Since most spans are taken by age, and numbers of spans are evened out, spans of a pack are
hardly more alike than in packs filled at random; and since the oldest always goes first, none waits
for ever.

Everything is integers in a fixed order, so the result is the same on any machine. Long streams are
packed by the same algorithm compiled (`packing.compiled_fill`) where numba is installed.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from packing.packs import Load, Packing
from packing.seeded import Indices

Filler = Callable[[Indices, Sequence[Load], int], Packing]
"""From the order of the stream, the loads and the look-ahead to packs."""

WORTH_COMPILING: Final = 1 << 18
"""Spans from which on loading, or once compiling, takes less time than it saves."""


def shuffle_fill(order: Indices, loads: Sequence[Load], look_ahead: int) -> Packing:
    """Pack the spans of a stream.

    Args:
        order: [n], span indices in the order in which they are drawn; repeats are welcome.
        loads: limited dimensions, tokens first; no span alone is over a limit.
        look_ahead: spans of the stream that may close a pack.

    Returns:
        Packs in the order in which they were filled, every span of `order` once.
    """
    return filler(len(order))(order, loads, look_ahead)


def filler(spans: int) -> Filler:
    """The faster way to `shuffle_fill` so many spans, in one stream or in several."""
    if spans < WORTH_COMPILING:
        return plain_fill
    try:
        from packing.compiled_fill import compiled_fill  # noqa: PLC0415 - numba is optional
    except ImportError:
        return plain_fill
    return compiled_fill


def spans_per_pack(sizes: NDArray[Any], limit: int) -> int:
    """Spans of a full pack of mean spans, rounded down."""
    return limit * len(sizes) // max(int(sizes.sum(dtype=np.int64)), 1)


def plain_fill(order: Indices, loads: Sequence[Load], look_ahead: int) -> Packing:
    """`shuffle_fill` in Python alone."""
    drawn = [load.per_span[order] for load in loads]
    window = _Window([load.tolist() for load in drawn], look_ahead)
    limits = [load.limit for load in loads]
    typical = spans_per_pack(drawn[0], limits[0])
    taken: list[int] = []
    offsets = [0]
    while (oldest := window.first()) is not None:
        room = list(limits)
        taken.append(window.take(oldest, room))
        while (oldest := window.first()) is not None and window.fits(oldest, room):
            after = window.after(oldest)
            last = after is None or not window.fits_both(oldest, after, room)
            if last and _tighter_without(window, oldest, room):
                break
            taken.append(window.take(oldest, room))
            if last:
                break
        while (best := _closing(window, room, typical - len(taken) + offsets[-1])) is not None:
            taken.append(window.take(best, room))
        offsets.append(len(taken))
    return Packing(items=order[np.asarray(taken, np.int64)], offsets=np.asarray(offsets, np.int64))


def _tighter_without(window: "_Window", oldest: int, room: list[int]) -> bool:
    """Whether the best fit alone leaves less room than `oldest` and the best fit beside it."""
    now = window.best_fit(room)
    then = window.best_fit(window.room_without(oldest, room), but=oldest)
    filled = window.sizes[oldest] + (0 if then is None else window.sizes[then])
    return now is not None and filled < window.sizes[now]


def _closing(window: "_Window", room: list[int], missing: int) -> int | None:
    """The next span of a pack that is being closed and lacks `missing` spans of the mean number."""
    if missing >= 2:
        share = room[0] // missing
        best = window.best_fit([share, *room[1:]])
        if best is not None and 2 * window.sizes[best] >= share:
            return best
    return window.best_fit(room)


class _Window:
    """The next spans of the stream, found by age and by size. A span is its stream position."""

    def __init__(self, loads: list[list[int]], look_ahead: int) -> None:
        self.sizes, *self._caps = loads
        self._look_ahead = look_ahead
        self._least = [min(load, default=0) for load in loads]
        self._gone = bytearray(len(self.sizes) + 1)  # one more, always 0: a search ends there
        self._head = 0
        self._next = 0
        self._present: list[int] = []  # distinct sizes in the window, ascending
        self._by_size: dict[int, deque[int]] = {}  # positions of each, oldest first
        for _ in range(min(look_ahead, len(self.sizes))):
            self._move_up()

    def _move_up(self) -> None:
        """Let one more span of the stream in."""
        at = self._next
        self._next = at + 1
        size = self.sizes[at]
        same = self._by_size.get(size)
        if same is not None:
            same.append(at)
        else:
            self._by_size[size] = deque((at,))
            insort(self._present, size)

    def first(self) -> int | None:
        """The oldest span in the window; None at the end of the stream."""
        self._head = self._gone.find(0, self._head)
        return self._head if self._head < self._next else None

    def after(self, span: int) -> int | None:
        """The oldest span in the window that is younger than `span`."""
        at = self._gone.find(0, span + 1)
        return at if at < self._next else None

    def _fits_caps(self, span: int, room: list[int]) -> bool:
        return all(cap[span] <= room[d] for d, cap in enumerate(self._caps, 1))

    def fits(self, span: int, room: list[int]) -> bool:
        """Whether a span fits."""
        return self.sizes[span] <= room[0] and (not self._caps or self._fits_caps(span, room))

    def fits_both(self, one: int, other: int, room: list[int]) -> bool:
        """Whether two spans fit together."""
        if self.sizes[one] + self.sizes[other] > room[0]:
            return False
        return not self._caps or self._fits_caps(other, self.room_without(one, room))

    def room_without(self, span: int, room: list[int]) -> list[int]:
        """What is left of `room` after `span`; negative where it does not fit."""
        left = [room[0] - self.sizes[span]]
        for d, cap in enumerate(self._caps, 1):
            left.append(room[d] - cap[span])
        return left

    def best_fit(self, room: list[int], but: int = -1) -> int | None:
        """The largest span that fits, the oldest of equals, `but` left out; None if none does."""
        for left, least in zip(room, self._least, strict=True):
            if left < least:
                return None
        for at in range(bisect_right(self._present, room[0]) - 1, -1, -1):
            for span in self._by_size[self._present[at]]:
                if span != but and (not self._caps or self._fits_caps(span, room)):
                    return span
        return None

    def take(self, span: int, room: list[int]) -> int:
        """Remove a span from window and room, and let the stream move up."""
        size = self.sizes[span]
        same = self._by_size[size]
        if same[0] == span:
            same.popleft()
        else:  # a cap made the search pass over older ones
            same.remove(span)
        if not same:
            del self._by_size[size]
            del self._present[bisect_left(self._present, size)]
        self._gone[span] = 1
        room[0] -= size
        for d, cap in enumerate(self._caps, 1):
            room[d] -= cap[span]
        if self._next < len(self.sizes):
            self._move_up()
        return span
