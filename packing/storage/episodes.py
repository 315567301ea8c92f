"""Signals and packet indexes of episodes: which of them a reader must read, and what that costs."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from packing.plan import Plan
from packing.seeded import STREAM_SAMPLE, random_words
from packing.spans import Int64s
from packing.storage.columns import Reads, column_reads
from packing.storage.episode_uses import Uses, held_windows, uses_of_packs, uses_of_some
from packing.storage.facts import StorageFacts
from packing.storage.packs import WINDOW_PACKS, ReadPacks

UNBOUNDED_PACKS: Final = 1 << 40
_MOST_USES: Final = 1_000_000
_EPISODE_ID_BYTES: Final = 64


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
    uses, memory = uses_of_packs(plan, len(facts.address), packs), _memory(plan, facts)
    if packs.cold:
        held = held_windows(uses, memory, limit_bytes)
        missed = uses.missed(held)
    else:
        some, share = uses_of_some(plan, packs, _MOST_USES)
        held = held_windows(some, memory, int(limit_bytes * share))
        per_window = int(some.missed(held).sum()) / share / packs.windows_of_plan(plan)
        missed = _missed_in_sample(uses, packs, held, per_window)
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
    calls[first] = 1
    reads = Reads(
        calls=calls,
        requests=np.bincount(first, requests, len(packs.row)),
        read_bytes=np.bincount(first, read, len(packs.row)),
    )
    return reads, UNBOUNDED_PACKS if held is None else max(held - 1, 1) * WINDOW_PACKS


def _missed_in_sample(
    uses: Uses, packs: ReadPacks, held: int | None, per_window: float
) -> NDArray[np.bool_]:
    """Which uses of a sample miss: those known to, and of the first ones as many as are due.

    What a reader used before the sample begins is not known; how much it misses on average is.
    """
    known = uses.missed(held) & ~uses.opens
    measured = packs.measured.ravel()[packs.rank_step]
    _, first = packs.windows(WINDOW_PACKS)
    due = per_window * int(measured[first].sum()) - int((known & measured[uses.first]).sum())
    share = due / max(1, int((uses.opens & measured[uses.first]).sum()))
    chosen = random_words(len(known), STREAM_SAMPLE) < min(max(share, 0.0), 1.0) * 2.0**64
    return known | (uses.opens & chosen)


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
