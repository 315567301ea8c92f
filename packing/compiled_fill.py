"""Shuffle-fill compiled by numba: the very packs of `packing.shuffle_fill`, in a 25th of the time.

The window is a table of places. Each is in two circular lists, of all spans by age and of those of
one size by age. Which sizes occur is a set of bits in levels, 32 to a word, so that the largest
size that fits is found by looking at a word or two of each level.

Importing this module needs numba; `packing.shuffle_fill` does without it where there is none.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from packing.packs import Load, Packing
from packing.seeded import Indices
from packing.shuffle_fill import spans_per_pack

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Loads = NDArray[np.int32 | np.int64]
_Int64s = NDArray[np.int64]

# Columns of the table of places: the span, as its position in the stream, and its neighbours.
_SPAN: Final = 0
_OLDER: Final = 1
_YOUNGER: Final = 2
_OLDER_OF_SIZE: Final = 3
_YOUNGER_OF_SIZE: Final = 4


def _jit(function: _Function) -> _Function:
    """Compile at the first call, and keep the result on disk for other processes."""
    try:
        return cast(
            "_Function", numba.njit(function, cache=True, forceinline=True, error_model="numpy")
        )
    except RuntimeError:  # neither the installation nor a cache directory can be written
        return cast("_Function", numba.njit(function, forceinline=True, error_model="numpy"))


def compiled_fill(order: Indices, loads: Sequence[Load], look_ahead: int) -> Packing:
    """See `packing.shuffle_fill.shuffle_fill`."""
    if not len(order):
        return Packing(items=order, offsets=np.zeros(1, np.int64))
    drawn = np.stack([load.per_span[order] for load in loads])
    limits = np.array([load.limit for load in loads], np.int64)
    limit, width = int(limits[0]), min(look_ahead, len(order))
    last_word, levels = limit >> 5, 1
    while last_word >> 5 * (levels - 1):
        levels += 1
    # After the `width` places, each its own neighbour: the end of the list of all spans, in whose
    # column _SPAN the next of the stream is kept, and the ends of the lists of each size.
    places = np.repeat(np.arange(width + 2 + limit, dtype=np.int64), 5).reshape(-1, 5)
    items = np.empty_like(order)
    # Far more than needed, but what is never written takes no memory.
    offsets = np.zeros(len(order) + 1, np.int64)
    packs = _fill(
        order,
        drawn,
        limits,
        drawn.min(axis=1).astype(np.int64),
        width,
        spans_per_pack(drawn[0], limit),
        places,
        np.zeros((levels, last_word + 1), np.int64),
        items,
        offsets,
    )
    return Packing(items=items, offsets=offsets[: packs + 1].copy())


@_jit
def _fill(
    order: Indices,
    loads: _Loads,
    limits: _Int64s,
    least: _Int64s,
    width: int,
    typical: int,
    places: _Int64s,
    bits: _Int64s,
    items: Indices,
    offsets: _Int64s,
) -> int:
    """Fill `items` and `offsets`; returns the number of packs."""
    for place in range(width):
        _enter(loads, width, places, bits, place, place)
    places[width, _SPAN] = width
    room, without = limits.copy(), limits.copy()
    end = packs = 0
    while places[width, _YOUNGER] != width:
        room[:] = limits
        begin = end
        while True:
            oldest = places[width, _YOUNGER]
            last = False
            if end > begin:
                if oldest == width or not _fits(loads, places[oldest, _SPAN], room):
                    break
                span, after = places[oldest, _SPAN], places[oldest, _YOUNGER]
                for d in range(len(room)):
                    without[d] = room[d] - loads[d, span]
                last = after == width or not _fits(loads, places[after, _SPAN], without)
                if last and _tighter_without(
                    loads, least, width, places, bits, oldest, room, without
                ):
                    break
            items[end] = order[_take(loads, width, places, bits, oldest, room)]
            end += 1
            if last:
                break
        while True:
            best = _closing(loads, least, width, places, bits, room, typical - (end - begin))
            if best < 0:
                break
            items[end] = order[_take(loads, width, places, bits, best, room)]
            end += 1
        packs += 1
        offsets[packs] = end
    return packs


@_jit
def _tighter_without(
    loads: _Loads,
    least: _Int64s,
    width: int,
    places: _Int64s,
    bits: _Int64s,
    oldest: int,
    room: _Int64s,
    without: _Int64s,
) -> bool:
    """Whether the best fit alone leaves less room than `oldest` and the best fit beside it."""
    now = _best_fit(loads, least, width, places, bits, room[0], room, -1)
    then = _best_fit(loads, least, width, places, bits, without[0], without, oldest)
    filled = loads[0, places[oldest, _SPAN]]
    if then >= 0:
        filled += loads[0, places[then, _SPAN]]
    return bool(now >= 0 and filled < loads[0, places[now, _SPAN]])


@_jit
def _closing(
    loads: _Loads,
    least: _Int64s,
    width: int,
    places: _Int64s,
    bits: _Int64s,
    room: _Int64s,
    missing: int,
) -> int:
    """The next span of a pack that is being closed and lacks `missing` spans of the mean number."""
    best = -1
    if missing >= 2:
        share = room[0] // missing
        best = _best_fit(loads, least, width, places, bits, share, room, -1)
        if best >= 0 and 2 * loads[0, places[best, _SPAN]] < share:
            best = -1
    if best < 0:
        best = _best_fit(loads, least, width, places, bits, room[0], room, -1)
    return best


@_jit
def _fits(loads: _Loads, span: int, room: _Int64s) -> bool:
    fits = True
    for d in range(len(room)):
        fits &= loads[d, span] <= room[d]
    return fits


@_jit
def _best_fit(
    loads: _Loads,
    least: _Int64s,
    width: int,
    places: _Int64s,
    bits: _Int64s,
    most: int,
    room: _Int64s,
    but: int,
) -> int:
    """Place of the largest span of at most `most` tokens that fits, not `but`; -1 if none does."""
    size = _largest(bits, most)
    for d in range(len(room)):
        if room[d] < least[d]:
            size = -1
    best = -1
    while size >= 0:
        end = width + 1 + size
        place = places[end, _YOUNGER_OF_SIZE]
        while place != end and (place == but or not _fits(loads, places[place, _SPAN], room)):
            place = places[place, _YOUNGER_OF_SIZE]
        if place != end:
            best = place
            size = -1
        else:
            size = _largest(bits, size - 1)
    return best


@_jit
def _take(
    loads: _Loads, width: int, places: _Int64s, bits: _Int64s, place: int, room: _Int64s
) -> int:
    """Remove a span from window and room, and let the stream move up; its stream position."""
    span = places[place, _SPAN]
    older, younger = places[place, _OLDER], places[place, _YOUNGER]
    places[older, _YOUNGER], places[younger, _OLDER] = younger, older
    older, younger = places[place, _OLDER_OF_SIZE], places[place, _YOUNGER_OF_SIZE]
    places[older, _YOUNGER_OF_SIZE], places[younger, _OLDER_OF_SIZE] = younger, older
    if older == younger and older > width:  # only the list's end is left
        _remove(bits, loads[0, span])
    for d in range(len(room)):
        room[d] -= loads[d, span]
    following = places[width, _SPAN]
    if following < loads.shape[1]:
        places[width, _SPAN] = following + 1
        _enter(loads, width, places, bits, place, following)
    return int(span)


@_jit
def _enter(
    loads: _Loads, width: int, places: _Int64s, bits: _Int64s, place: int, span: int
) -> None:
    """Put a span of the stream into an empty place, as the youngest."""
    places[place, _SPAN] = span
    last = places[width, _OLDER]
    places[place, _OLDER], places[place, _YOUNGER] = last, width
    places[last, _YOUNGER] = places[width, _OLDER] = place
    size = loads[0, span]
    end = width + 1 + size
    last = places[end, _OLDER_OF_SIZE]
    places[place, _OLDER_OF_SIZE], places[place, _YOUNGER_OF_SIZE] = last, end
    places[last, _YOUNGER_OF_SIZE] = places[end, _OLDER_OF_SIZE] = place
    if last == end:
        _add(bits, size)


@_jit
def _add(bits: _Int64s, number: int) -> None:
    for level in range(bits.shape[0]):
        bits[level, number >> 5] |= 1 << (number & 31)
        number >>= 5


@_jit
def _remove(bits: _Int64s, number: int) -> None:
    level = 0
    while level < bits.shape[0]:
        bits[level, number >> 5] &= ~(1 << (number & 31))
        level = level + 1 if bits[level, number >> 5] == 0 else bits.shape[0]
        number >>= 5


@_jit
def _largest(bits: _Int64s, most: int) -> int:
    """The largest number of the set that is at most `most`; -1 if there is none."""
    level, found = 0, -1
    while level < bits.shape[0] and most >= 0 and found < 0:
        word = bits[level, most >> 5] & ((2 << (most & 31)) - 1)
        if word:
            found = (most >> 5 << 5) + _top_bit(word)
        else:
            most = (most >> 5) - 1
            level += 1
    while found >= 0 and level > 0:
        level -= 1
        found = (found << 5) + _top_bit(bits[level, found])
    return found


@_jit
def _top_bit(word: int) -> int:
    """Number of the highest bit of a word of 32 bits that is not 0."""
    bit = 0
    for half in (16, 8, 4, 2, 1):
        if word >> half:
            word >>= half
            bit += half
    return bit
