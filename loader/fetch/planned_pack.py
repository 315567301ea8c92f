"""A pack of which is known what it decodes, and the one call that reads several of them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lake.read_video import ByteRange
from lake.video_runs import DecodeRun
from loader.assembly.signals import PackSignals
from loader.bad_spans import Damage
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedPack, FetchedRun
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
        runs: of packets, to be read and decoded.
        needed_bytes: see `NeededBytes`.
    """

    row: PackRow
    images: ImageTable
    signals: PackSignals
    pictures: PackPictures
    runs: Sequence[tuple[CameraStream, DecodeRun]]
    needed_bytes: int
    bad: Mapping[int, Damage]

    @cached_property
    def ranges(self) -> list[ByteRange]:
        """Where the packets of each run lie."""
        return [_byte_range(stream, run) for stream, run in self.runs]

    @cached_property
    def packet_bytes(self) -> int:
        """Bytes to read."""
        return sum(part.length for part in self.ranges)

    @cached_property
    def nbytes(self) -> int:
        """Bytes that it takes when it is read."""
        return self.packet_bytes + self.signals.state.nbytes + self.signals.action.nbytes


def read_window(
    tiers: Tiers, inspect: Inspect, window: Sequence[PlannedPack]
) -> deque[FetchedPack]:
    """Read the packets of some packs in one call.

    Raises:
        LakeError: see `Tiers.ranges`; or what `inspect` raises.
    """
    parts = iter(tiers.ranges([part for pack in window for part in pack.ranges]))
    packs: deque[FetchedPack] = deque()
    for pack in window:
        fetched = FetchedPack(
            row=pack.row,
            images=pack.images,
            signals=pack.signals,
            pictures=pack.pictures,
            runs=tuple(
                FetchedRun(stream=stream, index=stream.index, run=run, data=next(parts))
                for stream, run in pack.runs
            ),
            bad=pack.bad,
        )
        packs.append(inspect(fetched))
    return packs


def _byte_range(stream: CameraStream, run: DecodeRun) -> ByteRange:
    offsets = stream.packet_offsets
    first, stop = int(offsets[run.first_packet]), int(offsets[run.stop_packet])
    return ByteRange(stream.address, stream.base_offset + first, stop - first)
