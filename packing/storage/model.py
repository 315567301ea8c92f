"""What a rank reads, decodes and keeps in memory, modelled from the plan as the loader does it.

The loader (`loader.fetch.fetcher`, `loader.fetch.reuse`) takes packs in windows of 8. It knows the
packs of the look-ahead, reads signals and packet indexes of episodes it does not hold, a block of 8
packs at a time, and the packets of a window in one call, or in several where they are large; with
them come packets that lie back to back with them and that known coming packs need
(`loader.fetch.held_packets`). A group of pictures is decoded from its key frame up to the last
frame that any known pack shows; frames that coming packs show are kept. All of that follows from
the plan, so it is replayed here in arrays, over every step or a seeded sample of them.

Approximated are: the bytes of a frame inside its group (by a sample, see `packing.storage.facts`),
the phase of groups in episodes cut from longer videos, that packets held for coming packs always
have room, steps without a frame (taken as shown), and the least-recently-used cache of episodes (by
its mean footprint: Xiang et al., HOTL, ASPLOS 2013).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lake.store import Lake
from packing.errors import PlanError
from packing.plan import Plan
from packing.storage.columns import Reads
from packing.storage.episodes import read_episodes
from packing.storage.facts import StorageFacts, read_storage_facts
from packing.storage.packs import MOST_LOOK_AHEAD_PACKS, WINDOW_PACKS, ReadPacks, choose_packs
from packing.storage.use import StorageUse
from packing.storage.video import Decoding, Shown, decode_groups, read_packets, shown_pictures

MOST_LOOK_AHEAD_PICTURES: Final = 1 << 14
WINDOW_SHARE: Final = 4
BUFFER_BYTES: Final = 1 << 30
MOST_PICTURES: Final = 1_000_000
_MOST_ROUNDS: Final = 6


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A plan as some ranks read it.

    Attributes:
        world_size: ranks of the job.
        packs: what was replayed.
        reads: of each pack.
        shown: pictures of the packs.
        decoding: of groups of pictures.
        kept_limit_bytes: of decoded frames that a reader may keep.
        look_ahead_packs: packs that a reader knows beyond those of its window.
    """

    world_size: int
    packs: ReadPacks
    reads: Reads
    shown: Shown
    decoding: Decoding
    kept_limit_bytes: int
    look_ahead_packs: int

    @property
    def decoded_frames(self) -> NDArray[np.float64]:
        """float64 [P]: frames decoded for each pack."""
        return self._of_decodings(self.decoding.frames)

    def use(self) -> StorageUse:
        """The figures."""
        packs, reads, decoding = self.packs, self.reads, self.decoding
        # Where frames do not fit, the last rounds of the replay may still be a little above.
        most = int(decoding.kept_bytes.max())
        fits = min(1.0, self.kept_limit_bytes / max(most, 1))
        shown = np.bincount(self.shown.pack, minlength=len(packs.row))
        return StorageUse(
            world_size=self.world_size,
            rank_steps=packs.num_measured,
            calls=packs.spread(reads.calls),
            requests=packs.spread(reads.requests),
            read_bytes=packs.spread(reads.read_bytes),
            video_bytes=packs.spread(self._of_decodings(decoding.size)).mean,
            pictures=packs.spread(shown).mean,
            fresh_pictures=packs.spread(self._of_decodings(decoding.wanted)).mean,
            decoded_frames=packs.spread(self.decoded_frames).mean,
            kept_frames=int(decoding.kept_frames.max() * fits),
            kept_bytes=int(most * fits),
            look_ahead_packs=self.look_ahead_packs,
        )

    def _of_decodings(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """float64 [P]: sums of a figure per decoding over each pack."""
        sums = np.bincount(self.decoding.pack, values, len(self.packs.row))
        return sums.astype(np.float64)


def replay(
    plan: Plan,
    facts: StorageFacts,
    world_size: int,
    *,
    num_workers: int = 1,
    buffer_bytes: int = BUFFER_BYTES,
    most_pictures: int = MOST_PICTURES,
) -> Replay:
    """Read a plan as the loader would.

    Args:
        plan: the plan.
        facts: of its episodes.
        world_size: ranks, at most the plan's slots.
        num_workers: decode processes of a rank, as `loader.PackLoader` takes them.
        buffer_bytes: memory of a rank, likewise.
        most_pictures: where the plan shows more, a sample of its ranks and steps that shows about
            as many is replayed.

    Raises:
        PlanError: more ranks than slots.
    """
    slots = plan.header.slots_per_step
    if not 1 <= world_size <= slots:
        raise PlanError(
            f"world size {world_size}: the plan's steps have {slots} slots, so 1 to {slots} ranks"
        )
    packs = choose_packs(plan, world_size, num_workers, most_pictures)
    shown = shown_pictures(plan, facts, packs)
    packet_bytes = episode_bytes = buffer_bytes // num_workers // 8
    kept_bytes = 2 * packet_bytes
    loads, held_packs = read_episodes(plan, facts, packs, episode_bytes)
    per_pack = max(len(shown.pack) / len(packs.row), 1e-9)
    ahead = min(
        max(plan.header.run_steps * packs.per_step, WINDOW_PACKS),
        MOST_LOOK_AHEAD_PACKS,
        int(MOST_LOOK_AHEAD_PICTURES / per_pack) // WINDOW_PACKS * WINDOW_PACKS + WINDOW_PACKS,
        held_packs,
    )
    keep_share = np.ones(len(packs.row))
    for _ in range(_MOST_ROUNDS):
        decoding = decode_groups(shown, facts, packs, ahead=ahead, keep_share=keep_share)
        # What does not fit is not kept, and decoded again.
        kept = decoding.kept_bytes / kept_bytes
        if kept.max() <= 1:
            break
        keep_share = np.clip(keep_share / np.maximum(kept, 0.1), 0.0, 1.0)
    pack_bytes = max(decoding.size.sum() / len(packs.row), 1.0)
    read_packs = int(np.clip(packet_bytes // WINDOW_SHARE / pack_bytes, 1, WINDOW_PACKS))
    return Replay(
        world_size=world_size,
        packs=packs,
        reads=loads + read_packets(decoding, facts, packs, read_packs),
        shown=shown,
        decoding=decoding,
        kept_limit_bytes=kept_bytes,
        look_ahead_packs=ahead,
    )


def with_storage(lake: Lake, plan: Plan, world_sizes: Iterable[int] | None = None) -> Plan:
    """The plan with these figures in the quality of its newest segment; its hash stays.

    Args:
        lake: that the plan was made from.
        plan: the plan.
        world_sizes: None for 1 and the number of slots.

    Raises:
        PlanError: episodes are gone, or a world size is none of the plan's.
        LakeError: the lake cannot be read.
    """
    header = plan.header
    facts = read_storage_facts(lake, header, plan.episodes)
    sizes = sorted({1, header.slots_per_step}) if world_sizes is None else world_sizes
    storage = tuple(replay(plan, facts, size).use() for size in sizes)
    newest = replace(header.newest, quality=replace(header.quality, storage=storage))
    return replace(plan, header=replace(header, segments=(*header.segments[:-1], newest)))
