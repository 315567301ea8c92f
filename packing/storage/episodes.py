"""Signals and packet indexes of episodes: what a reader holds of them, and what it reads again.

A reader keeps episodes as its memory allows and drops the least recently used. Which of them are
still there when they are needed again follows from how many bytes of distinct episodes pass in how
many windows: the footprint (Xiang et al., HOTL: a higher order theory of locality, ASPLOS 2013).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from packing.plan import Plan
from packing.spans import Int64s
from packing.storage.columns import Reads, column_reads
from packing.storage.facts import StorageFacts
from packing.storage.packs import WINDOW_PACKS, ReadPacks, spans_of

UNBOUNDED_PACKS: Final = 1 << 40
_CALLS_PER_LOAD: Final = 3
_EPISODE_ID_BYTES: Final = 64


@dataclass(frozen=True, kw_only=True)
class _Uses:
    """Windows that need an episode, one row each: int64 [n], by reader, episode and window.

    Attributes:
        first: first pack of the window.
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


def read_episodes(
    plan: Plan, facts: StorageFacts, packs: ReadPacks, limit_bytes: int
) -> tuple[Reads, int]:
    """Reads of each pack, and the packs whose episodes fit into memory together.

    Args:
        plan: the plan.
        facts: of its episodes.
        packs: to replay.
        limit_bytes: memory of a reader for episodes.
    """
    uses = _uses(plan, facts, packs)
    held = _held_windows(uses, _memory(plan, facts), limit_bytes)
    missed = uses.opens
    if held is not None:
        missed = missed | (np.diff(uses.nth, prepend=0) > held)
    elif not packs.cold:
        missed = np.zeros(len(missed), np.bool_)  # read long before the sample begins
    first, episode = uses.first[missed], uses.episode[missed]
    order = np.lexsort((facts.address[episode], first))
    first, episode = first[order], episode[order]
    requests, read = np.zeros(len(first)), np.zeros(len(first))
    for values in _columns(facts):
        opened, size = column_reads(
            first,
            facts.address[episode],
            values[episode],
            column_bytes=float(values.sum()),
            rows=len(values),
            block_bytes=facts.fetch_block_bytes,
        )
        requests, read = requests + opened, read + size
    calls = np.zeros(len(packs.row), np.int64)
    calls[first] = _CALLS_PER_LOAD
    reads = Reads(
        calls=calls,
        requests=np.bincount(first, requests, len(packs.row)),
        read_bytes=np.bincount(first, read, len(packs.row)),
    )
    return reads, UNBOUNDED_PACKS if held is None else max(held - 1, 1) * WINDOW_PACKS


def _uses(plan: Plan, facts: StorageFacts, packs: ReadPacks) -> _Uses:
    pack, (episode,) = spans_of(plan, packs, "episode")
    count = len(facts.address)
    number, firsts = packs.windows(WINDOW_PACKS)
    pairs = np.unique(number[pack] * count + episode)
    window, episode = pairs // count, pairs % count
    first = firsts[window]
    reader, nth = packs.reader[first], packs.position[first] // WINDOW_PACKS
    order = np.lexsort((nth, episode, reader))
    return _Uses(first=first[order], episode=episode[order], reader=reader[order], nth=nth[order])


def _held_windows(uses: _Uses, memory: Int64s, limit_bytes: int) -> int | None:
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


def _memory(plan: Plan, facts: StorageFacts) -> Int64s:
    """int64 [E]: bytes that a reader holds of each episode."""
    specs = plan.header.specs
    signals = max((s.state_size for s in specs), default=0) + max(
        (s.action_size for s in specs), default=0
    )
    cameras = (facts.frames > 0).sum(axis=1)
    memory: Int64s = (
        4 * facts.num_steps * (signals + cameras) + 64 * facts.frames.sum(axis=1) + 4096
    )
    return memory


def _columns(facts: StorageFacts) -> list[Int64s]:
    """Of every column read, bytes of each episode's value; those stored once per page left out."""

    def each(size: int) -> Int64s:
        return np.full(len(facts.address), size, np.int64)

    return [
        # Signals: id, steps, stamps and their checksum, checksums of the features, the features.
        each(_EPISODE_ID_BYTES),
        each(4),
        8 * facts.num_steps,
        each(8),
        8 * facts.features_stored,
        *facts.feature_bytes,
        # Packet indexes: id, camera sizes, the indexes and their checksums.
        each(_EPISODE_ID_BYTES),
        8 * facts.cameras_stored,
        facts.index_bytes,
        8 * facts.cameras_stored,
        # The content hash.
        each(32),
    ]
