"""When a reader needs which episode, and how many windows' episodes its memory holds.

A reader keeps episodes as its memory allows and drops the least recently used. Which of them are
still there when they are needed again follows from how many bytes of distinct episodes pass in how
many windows: the footprint (Xiang et al., HOTL: a higher order theory of locality, ASPLOS 2013).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.plan import Plan
from packing.seeded import STREAM_SAMPLE, random_words
from packing.spans import Int64s
from packing.storage.packs import WINDOW_PACKS, ReadPacks, spans_of

_LEAST_EPISODES: Final = 200


@dataclass(frozen=True, kw_only=True)
class Uses:
    """Windows that need an episode, one row each: int64 [n], by reader, episode and window.

    Attributes:
        first: first pack of the window; 0 where only counts are wanted.
        episode: which.
        reader: whose.
        nth: the reader's count of windows.
    """

    first: Int64s
    episode: Int64s
    reader: Int64s
    nth: Int64s

    @property
    def opens(self) -> NDArray[np.bool_]:
        """Whether the reader uses the episode for the first time, bool [n]."""
        opens: NDArray[np.bool_] = (np.diff(self.episode, prepend=-1) != 0) | (
            np.diff(self.reader, prepend=-1) != 0
        )
        return opens

    def missed(self, held: int | None) -> NDArray[np.bool_]:
        """Whether the episode is not in memory, bool [n], where the last `held` windows' are."""
        if held is None:
            return self.opens
        return self.opens | (np.diff(self.nth, prepend=0) > held)


def uses_of_packs(plan: Plan, episodes: int, packs: ReadPacks) -> Uses:
    """The uses in the replayed packs."""
    pack, (episode,) = spans_of(plan, packs, "episode")
    number, firsts = packs.windows(WINDOW_PACKS)
    pairs = np.unique(number[pack] * episodes + episode)
    window, episode = pairs // episodes, pairs % episodes
    first = firsts[window]
    reader, nth = packs.reader[first], packs.position[first] // WINDOW_PACKS
    order = np.lexsort((nth, episode, reader))
    return Uses(first=first[order], episode=episode[order], reader=reader[order], nth=nth[order])


def uses_of_some(plan: Plan, packs: ReadPacks, most: int) -> tuple[Uses, float]:
    """The uses of some episodes over the whole plan, and their share of all episodes.

    Some episodes stand for all, each with all of its uses: SHARDS (Waldspurger et al., FAST 2015).

    Args:
        plan: the plan.
        packs: whose job it is.
        most: about as many spans are looked at.
    """
    episodes = plan.episodes.num_rows
    of_span = pc.list_flatten(plan.packs["episode"]).to_numpy()
    share = min(1.0, max(most / max(len(of_span), 1), _LEAST_EPISODES / episodes))
    chosen = random_words(episodes, plan.header.seed, STREAM_SAMPLE) < share * 2.0**64
    at = np.flatnonzero(chosen[of_span])
    ends = np.cumsum(pc.list_value_length(plan.packs["span_id"]).to_numpy().astype(np.int64))
    row, episode = np.searchsorted(ends, at, side="right"), of_span[at].astype(np.int64)
    reader, nth = packs.reader_of(row, plan.header.slots_per_step)
    order = np.lexsort((nth, episode, reader))
    reader, episode, nth = reader[order], episode[order], nth[order]
    new = np.diff(reader, prepend=-1) != 0
    new |= (np.diff(episode, prepend=-1) != 0) | (np.diff(nth, prepend=-1) != 0)
    uses = Uses(
        first=np.zeros(int(new.sum()), np.int64),
        episode=episode[new],
        reader=reader[new],
        nth=nth[new],
    )
    return uses, max(int(chosen.sum()), 1) / episodes


def held_windows(uses: Uses, memory: Int64s, limit_bytes: int) -> int | None:
    """The windows whose distinct episodes fill the memory on average; None where all fit."""
    if not len(uses.nth):
        return None
    opens = uses.opens
    readers = len(np.unique(uses.reader))
    size = memory[uses.episode]
    if int(size[opens].sum()) <= limit_bytes * readers:
        return None
    windows = int(uses.nth.max()) + 1
    # Gaps between uses of an episode, also before the first and after the last.
    closes = np.roll(opens, -1)
    gap = np.concatenate(
        [
            np.where(opens, uses.nth + 1, np.diff(uses.nth, prepend=0)),
            windows - uses.nth[closes],
        ]
    )
    weight = np.concatenate([size, size[closes]]).astype(np.float64)
    total = float(size[opens].sum())

    def footprint(length: int) -> float:
        absent = (weight * np.maximum(gap - length, 0)).sum() / (windows - length + 1)
        return (total - float(absent)) / readers

    low, high = 1, windows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if footprint(middle) <= limit_bytes else (low, middle)
    return low
