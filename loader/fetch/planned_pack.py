"""A pack of which is known what it decodes, and the one call that reads several of them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lake.video_runs import DecodeRun
from loader.assembly.signals import PackSignals
from loader.bad_spans import Damage
from loader.fetch.fetched import FetchedPack, FetchedRun
from loader.fetch.held_packets import PacketRead
from loader.fetch.images import ImageTable
from loader.fetch.plan_rows import PackRow
from loader.fetch.reuse import PackPictures
from loader.storage.tiers import Tiers

Inspect = Callable[[FetchedPack], FetchedPack]
"""What is done with a pack in the thread that has read it, such as a check of its bytes."""


@dataclass(frozen=True, kw_only=True)
class PlannedPack:
    """A pack of which is known what it reads.

    Attributes:
        row, images, signals, pictures, bad: as in `FetchedPack`.
        runs: of packets, to be decoded, each with the read that brings it.
        reads: those of the reads that are this pack's to begin.
        needed_bytes: see `NeededBytes`.
    """

    row: PackRow
    images: ImageTable
    signals: PackSignals
    pictures: PackPictures
    runs: Sequence[tuple[DecodeRun, PacketRead]]
    reads: Sequence[PacketRead]
    needed_bytes: int
    bad: Mapping[int, Damage]

    @property
    def read_bytes(self) -> int:
        """Bytes to read, those that coming packs will decode among them."""
        return sum(read.range.length for read in self.reads)

    @cached_property
    def nbytes(self) -> int:
        """Bytes that it takes when it is read; what is held for coming packs counts there."""
        packets = sum(read.part_bytes(run) for run, read in self.runs)
        return packets + self.signals.state.nbytes + self.signals.action.nbytes


def read_window(
    tiers: Tiers, inspect: Inspect, window: Sequence[PlannedPack]
) -> deque[FetchedPack]:
    """Read the packets of some packs in one call; wait for those that an earlier window reads.

    Raises:
        LakeError: see `Tiers.ranges`; or what `inspect` raises.
    """
    reads = [read for pack in window for read in pack.reads]
    try:
        parts = tiers.ranges([read.range for read in reads])
    except BaseException as error:
        for read in reads:
            read.failed(error)
        raise
    for read, data in zip(reads, parts, strict=True):
        read.arrived(data)
    packs: deque[FetchedPack] = deque()
    for pack in window:
        fetched = FetchedPack(
            row=pack.row,
            images=pack.images,
            signals=pack.signals,
            pictures=pack.pictures,
            runs=tuple(
                FetchedRun(
                    stream=read.stream, index=read.stream.index, run=run, data=read.part(run)
                )
                for run, read in pack.runs
            ),
            bad=pack.bad,
        )
        packs.append(inspect(fetched))
    return packs
