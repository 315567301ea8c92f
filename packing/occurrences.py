"""How often each span occurs in each epoch of a mixture: systematic sampling, run by run.

The runs of a source are laid in a shuffled order around a circle whose length is the tokens of the
source. An epoch that takes A of T tokens goes round A // T times and A % T further, and the next
one goes on from there, as one deals from a deck. So

- a run (windows that share a group of pictures, see `packing.draw`) is in or out as a whole,
- a span of quota q = A / T occurs floor(q) or ceil(q) times in an epoch, and over the first E
  epochs floor(q E) or ceil(q E) times,
- an epoch holds A tokens of the source to within one run.

Where every episode of a source has an equal share, each episode has a circle of its own, for which
the same holds; the places at which the circles are begun are spread evenly over episodes of like
length, so that what is over in one is missing in another.

All is integers. Systematic sampling: W. G. Madow and L. H. Madow, "On the theory of systematic
sampling", Annals of Mathematical Statistics 15 (1944).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packing.errors import PlanError
from packing.mixture import PlannedMixture
from packing.seeded import STREAM_DECK, STREAM_PHASE, Indices, random_words
from packing.spans import Int64s

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_LARGEST: Final = 1 << 62


@dataclass(frozen=True, kw_only=True, eq=False)
class Occurrences:
    """How often the spans of R runs occur, epoch by epoch.

    Run r occurs `whole[r]` times in every epoch and once more in `part[r]` of `of[r]` epochs:
    `(epoch * part + phase) mod of` has moved past `of`.

    Attributes:
        num_spans: int64 [R], spans of each run; they follow each other by id.
        whole, part, of, phase: int64 [R]; 0 <= part < of, 0 <= phase < of.
    """

    num_spans: Int64s
    whole: Int64s
    part: Int64s
    of: Int64s
    phase: Int64s

    def of_runs(self, epoch: int) -> Int64s:
        """int64 [R]: how often the spans of each run occur.

        Raises:
            PlanError: an epoch so far away that 64 bits do not hold it.
        """
        if int(self.of.max(initial=0)) * (epoch + 1) >= _LARGEST:
            raise PlanError(f"mixture: epoch {epoch} of so many tokens is beyond 64-bit numbers")
        at = (epoch * self.part + self.phase) % self.of
        return self.whole + (at >= self.of - self.part)

    def counts(self, epoch: int) -> Int64s:
        """int64 [n]: how often each span occurs in an epoch."""
        return np.repeat(self.of_runs(epoch), self.num_spans)


def draw_occurrences(runs: pa.Table, mixture: PlannedMixture, seed: int) -> Occurrences:
    """Decide for all epochs how often each span occurs.

    Args:
        runs: the plan's table of runs (see `packing.plan`), of one segment.
        mixture: its sources, with the tokens that an epoch takes of each.
        seed: of the plan.

    Raises:
        PlanError: numbers beyond 64 bits.
    """
    source = _numpy(runs, "source")
    tokens = _numpy(runs, "tokens")
    unit = source
    if mixture.asked.per == "episode":
        # By order and not by number, which changes when a plan is appended to another.
        unit = np.cumsum(np.diff(_numpy(runs, "episode"), prepend=-1) != 0) - 1
    units = int(unit.max()) + 1
    unit_tokens, unit_source = np.zeros(units, np.int64), np.zeros(units, np.int64)
    np.add.at(unit_tokens, unit, tokens)
    unit_source[unit] = source
    take, scale = np.zeros(units, np.int64), np.ones(units, np.int64)
    for number, planned in enumerate(mixture.sources):
        mine = np.flatnonzero(unit_source == number)
        take[mine], scale[mine] = _share_out(
            unit_tokens[mine], planned.epoch_tokens, mixture.asked.max_repeats
        )
    length = scale * unit_tokens
    # Runs around their circles, in a shuffled order.
    deck = np.lexsort((random_words(len(tokens), seed, STREAM_DECK), unit))
    before = np.empty(len(tokens), np.int64)
    before[deck] = np.cumsum(tokens[deck]) - tokens[deck]
    first = np.cumsum(unit_tokens) - unit_tokens
    begin = _begins(length, unit_source, seed)
    return Occurrences(
        num_spans=_numpy(runs, "num_spans"),
        whole=(take // length)[unit],
        part=(take % length)[unit],
        of=length[unit],
        phase=(scale[unit] * (before - first[unit]) + begin[unit]) % length[unit],
    )


def number_occurrences(span_id: Indices, epoch_bounds: Int64s) -> NDArray[np.int32]:
    """0 where a span is met first in its epoch, then 1, 2, ...; int32 [items].

    Args:
        span_id: int32 or int64 [items], spans in the order of consumption.
        epoch_bounds: int64 [epochs + 1], where each epoch begins in it, and the end.
    """
    number = np.zeros(len(span_id), np.int32)
    for first, stop in pairwise(epoch_bounds.tolist()):
        items = span_id[first:stop]
        counts = np.bincount(items)
        if counts.max(initial=0) < 2:  # the usual case: no repeats
            continue
        again = np.flatnonzero(counts[items] > 1)
        order = again[np.argsort(items[again], kind="stable")]
        begins = np.flatnonzero(np.diff(items[order], prepend=-1))
        times = np.diff(begins, append=len(order))
        number[first + order] = np.arange(len(order)) - np.repeat(begins, times)
    return number


def _share_out(tokens: Int64s, epoch_tokens: int, max_repeats: int | None) -> tuple[Int64s, Int64s]:
    """What each circle of a source gives of an epoch, as take / scale tokens, int64 [U] each.

    Equal amounts, but none more than `max_repeats` times its tokens; the rest gives the more.
    """
    ascending = np.argsort(tokens, kind="stable")
    take, scale = np.zeros_like(tokens), np.ones_like(tokens)
    left, rest = epoch_tokens, len(tokens)
    if max_repeats is not None:
        for capped in ascending.tolist():
            most = max_repeats * int(tokens[capped])
            if most * rest >= left:
                break
            take[capped] = most
            left, rest = left - most, rest - 1
    if rest:
        others = ascending[len(tokens) - rest :]
        if max(rest * int(tokens.max()), left) >= _LARGEST:
            raise PlanError(f"mixture: {left} tokens of {rest} episodes are beyond 64-bit numbers")
        take[others], scale[others] = left, rest
    return take, scale


def _begins(length: Int64s, source: Int64s, seed: int) -> Int64s:
    """int64 [U]: where each circle is begun, below its length.

    Multiples of the golden ratio over circles sorted by length: any few in a row are spread evenly.
    """
    nth = np.empty(len(length), np.uint64)
    nth[np.lexsort((length, source))] = np.arange(len(length), dtype=np.uint64)
    word = (nth * _GOLDEN + random_words(1, seed, STREAM_PHASE)) >> np.uint64(32)
    # word / 2^32 of the length, in halves that fit into 64 bits.
    high, low = (length >> 31).astype(np.uint64), (length & (2**31 - 1)).astype(np.uint64)
    return (((word * high) >> np.uint64(1)) + ((word * low) >> np.uint64(32))).astype(np.int64)


def _numpy(table: pa.Table, name: str) -> Int64s:
    values: Int64s = table[name].to_numpy().astype(np.int64)
    return values
