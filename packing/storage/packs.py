"""Which packs are replayed, and in which order the readers take them."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.plan import Plan
from packing.seeded import STREAM_SAMPLE, random_words
from packing.spans import Int64s
from packing.storage.use import Spread

WINDOW_PACKS: Final = 8
MOST_LOOK_AHEAD_PACKS: Final = 256


@dataclass(frozen=True, kw_only=True)
class ReadPacks:
    """P packs of some stretches of some ranks, in the order in which each reader takes them.

    A reader is a decode process of a rank; the first of two takes the first block of 8 packs, the
    second the second, and so on.

    Attributes:
        row: int64 [P], row of the plan.
        reader: int64 [P], ascending.
        position: int64 [P], the reader's count from the begin of the stretch.
        rank_step: int64 [P], number of the stretch and step, an index of the two below, flattened.
        measured: bool [stretches, steps], False for those that only lead up to the others.
        step: int64 [stretches, steps], step of the plan.
        cold: whether the stretches begin with the plan.
        world_size: ranks of the job.
        num_workers: readers of a rank.
        per_step: packs of a rank and step.
    """

    row: Int64s
    reader: Int64s
    position: Int64s
    rank_step: Int64s
    measured: NDArray[np.bool_]
    step: Int64s
    cold: bool
    world_size: int
    num_workers: int
    per_step: int

    @property
    def num_measured(self) -> int:
        """Steps of a rank over which figures are taken."""
        return int(self.measured.sum())

    def windows_of_plan(self, plan: Plan) -> float:
        """Windows of all readers over the whole plan."""
        return plan.num_steps * self.per_step * self.world_size / WINDOW_PACKS

    def reader_of(self, row: Int64s, slots: int) -> tuple[Int64s, Int64s]:
        """Of rows of the plan the reader, of all of the job, and its count of windows."""
        step, slot = row // slots, row % slots
        position = step * self.per_step + slot // self.world_size
        block = position // WINDOW_PACKS
        worker = slot % self.world_size * self.num_workers + block % self.num_workers
        return worker, block // self.num_workers

    def windows(self, window_packs: int, *, first_alone: bool = False) -> tuple[Int64s, Int64s]:
        """The number of each pack's window, int64 [P], and each window's first pack, int64 [W].

        Args:
            window_packs: packs of a window.
            first_alone: the first pack of a job is a window of its own.
        """
        begins = np.diff(self.reader, prepend=-1) != 0
        begins |= np.diff(self.position // window_packs, prepend=-1) != 0
        if first_alone and self.cold:
            begins[1:] |= self.position[:-1] == 0
        return np.cumsum(begins) - 1, np.flatnonzero(begins)

    def per_rank_step(self, per_pack: NDArray[Any]) -> NDArray[np.float64]:
        """float64 [stretches, steps]: sums of a figure per pack [P]."""
        sums = np.bincount(self.rank_step, per_pack, self.measured.size)
        return sums.astype(np.float64).reshape(self.measured.shape)

    def spread(self, per_pack: NDArray[Any]) -> Spread:
        """Of a figure per pack [P], over the measured steps of a rank."""
        return Spread.of(self.per_rank_step(per_pack)[self.measured])


def choose_packs(plan: Plan, world_size: int, num_workers: int, most_pictures: int) -> ReadPacks:
    """All packs of all ranks, or a seeded sample of ranks and stretches of steps.

    A stretch is led up to by as many packs as a reader looks ahead, so that its memory is as full
    as in the middle of a job.

    Args:
        plan: the plan.
        world_size: ranks.
        num_workers: readers of a rank.
        most_pictures: about as many are shown by what is chosen.
    """
    header = plan.header
    slots, steps = header.slots_per_step, header.num_steps
    per_step = -(-slots // world_size)
    images = pc.list_flatten(plan.packs["images"])
    pictures = max(int(pc.sum(images).as_py() or 0), len(images))  # a span without one costs too
    block = WINDOW_PACKS * num_workers
    reach = min(header.run_steps * per_step, MOST_LOOK_AHEAD_PACKS) + WINDOW_PACKS
    lead = -(-(reach * num_workers) // per_step)
    length = 3 * lead + 1
    if pictures <= most_pictures or length >= steps:
        lead, length = 0, steps
    share = max(1, pictures * length // (steps * world_size))
    ranks = min(world_size if not lead else 1 << 20, max(1, most_pictures // share))
    if lead:
        words = random_words(2 * ranks, header.seed, STREAM_SAMPLE, world_size)
        rank = (words[:ranks] % np.uint64(world_size)).astype(np.int64)
        # Where a block of the first reader begins.
        unit = block // np.gcd(block, per_step)
        places = (steps - length) // unit + 1
        first = (words[ranks:] % np.uint64(places)).astype(np.int64) * unit
    else:
        rank = np.sort(np.argsort(random_words(world_size, header.seed, STREAM_SAMPLE))[:ranks])
        first = np.zeros(ranks, np.int64)
    nth = np.arange(length * per_step)
    stretch = np.arange(ranks)[:, None]
    row = (first[:, None] + nth // per_step) * slots
    slot = rank[:, None] + nth % per_step * world_size
    reader = stretch * num_workers + nth // WINDOW_PACKS % num_workers
    position = nth // block * WINDOW_PACKS + nth % WINDOW_PACKS
    there = slot < slots
    reader, position = reader[there], np.broadcast_to(position, there.shape)[there]
    order = np.lexsort((position, reader))
    return ReadPacks(
        row=(row + slot)[there][order],
        reader=reader[order],
        position=position[order],
        rank_step=(stretch * length + nth // per_step)[there][order],
        measured=np.broadcast_to(np.arange(length) >= lead, (ranks, length)),
        step=first[:, None] + np.arange(length),
        cold=not lead,
        world_size=world_size,
        num_workers=num_workers,
        per_step=per_step,
    )


def spans_of(plan: Plan, packs: ReadPacks, *columns: str) -> tuple[Int64s, list[Int64s]]:
    """The pack of each span of the packs, and columns of the spans; int64 [n] each."""
    sizes = pc.list_value_length(plan.packs["span_id"]).to_numpy().astype(np.int64)
    begins = (np.cumsum(sizes) - sizes)[packs.row]
    ours = sizes[packs.row]
    pack = np.repeat(np.arange(len(ours)), ours)
    item = np.arange(len(pack)) + np.repeat(begins - np.cumsum(ours) + ours, ours)
    flat = (pc.list_flatten(plan.packs[name]).to_numpy() for name in columns)
    return pack, [values[item].astype(np.int64) for values in flat]
