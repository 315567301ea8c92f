"""Packets that do not match their checksums: what is lost with them, and what is not.

A packet that fails is read again past every cache. Damage in the lake is the same in every read,
damage on the way is not: a packet is lost only when two reads bring the same wrong bytes. A frame
is lost with any packet of its own shortest run, from the key frame to its packet. So what is lost
follows from the lake alone, never from what was read together.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from lake.errors import CorruptDataError
from lake.read_video import ByteRange
from lake.video_runs import RunTable, damaged_packets
from loader.bad_spans import BadSpan, Damage
from loader.fetch.bad_rows import MOST_REREADS, damaged_on_the_way
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedPack, FetchedRun
from loader.fetch.plan_rows import PlanRows
from loader.storage.tiers import Tiers

_Packet = tuple[CameraStream, int]


def checked(tiers: Tiers, pack: FetchedPack) -> FetchedPack:
    """Check the packets of a pack that was read, and read again those that fail; in any thread.

    Args:
        tiers: where to read.
        pack: as it was read.

    Returns:
        The pack with the right bytes where a further read brought them, and the lost packets.

    Raises:
        CorruptDataError: every read brings other wrong bytes, or bytes of another length.
        LakeError: the store failed.
    """
    wrong: dict[_Packet, bytes] = {}
    for fetched in pack.runs:
        try:
            damaged = damaged_packets(fetched.index, fetched.run, fetched.data)
        except CorruptDataError as error:
            raise CorruptDataError(f"{pack.where(fetched)}: {error}") from error
        for packet in damaged:
            part = slice(*_place(fetched, packet, packet + 1))
            wrong[fetched.stream, packet] = bytes(fetched.data[part])
    if not wrong:
        return pack
    right, lost = _read_again(tiers, wrong)
    runs = tuple(_put_right(fetched, right) for fetched in pack.runs)
    return replace(pack, runs=runs, lost=tuple(lost))


class BadBytes:
    """Finds the bad spans of packs, one after the other in their order, and what can be decoded.

    Frames are kept for coming packs, so it remembers every lost packet.

    Args:
        cameras: names of the plan's cameras.
    """

    def __init__(self, cameras: Sequence[str]) -> None:
        self._cameras = cameras
        self._lost: dict[tuple[int, int], set[int]] = {}  # of each episode's camera

    def settled(self, pack: FetchedPack) -> FetchedPack:
        """The next pack, as `checked` gave it, with its bad spans, and runs of sound packets."""
        for stream, packet in pack.lost:
            self._lost.setdefault((stream.episode, stream.camera), set()).add(packet)
        if not self._lost:
            return pack
        lost = {
            stream: first_lost(stream.runs, packets)
            for stream in {*pack.images.streams, *(fetched.stream for fetched in pack.runs)}
            if (packets := self._lost.get((stream.episode, stream.camera)))
        }
        if not lost:
            return pack
        runs = [
            part
            for fetched in pack.runs
            for part in (
                _sound_parts(fetched, lost[fetched.stream]) if fetched.stream in lost else [fetched]
            )
        ]
        return replace(pack, runs=tuple(runs), bad={**self._damage(pack, lost), **pack.bad})

    def _damage(
        self, pack: FetchedPack, lost: Mapping[CameraStream, NDArray[np.int32]]
    ) -> dict[int, Damage]:
        """Of each span that shows a lost frame, the first packet that it lacks."""
        images = pack.images
        found: dict[int, Damage] = {}
        for number, stream in enumerate(images.streams):
            if stream not in lost:
                continue
            pictures = np.flatnonzero(images.stream == number)
            packets = lost[stream][images.frame[pictures]]
            pairs = zip(images.span[pictures].tolist(), packets.tolist(), strict=True)
            for span, packet in pairs:
                if packet >= 0 and span not in found:
                    reason = (
                        f"video packet {packet} of {len(stream.index.packet_size)} does not match"
                        " its checksum"
                    )
                    found[span] = Damage(camera=self._cameras[stream.camera], reason=reason)
        return found


def bad_spans_of(pack: FetchedPack, rows: PlanRows) -> tuple[BadSpan, ...]:
    """The bad spans of a pack that was settled, in its order."""
    row = pack.row
    return tuple(
        BadSpan(
            span_id=int(row.span_id[span]),
            occurrence=int(row.occurrence[span]),
            epoch=row.epoch,
            step=row.place.step,
            slot=row.place.slot,
            episode_id=rows.episode_id[int(row.episode[span])].as_py(),
            camera=damage.camera,
            reason=damage.reason,
        )
        for span, damage in sorted(pack.bad.items())
    )


def first_lost(table: RunTable, packets: Collection[int]) -> NDArray[np.int32]:
    """int32 [F]: per display ordinal the first lost packet of its shortest run, -1 for none."""
    lost = np.array([*sorted(packets), np.iinfo(np.int32).max], np.int32)
    first = lost[np.searchsorted(lost, table.start)]
    return np.where(first <= table.packet, first, -1).astype(np.int32)


def _read_again(
    tiers: Tiers, wrong: Mapping[_Packet, bytes]
) -> tuple[dict[_Packet, bytes], list[_Packet]]:
    """The right bytes of packets, and the packets that are lost."""
    right: dict[_Packet, bytes] = {}
    lost: list[_Packet] = []
    seen = {packet: {data} for packet, data in wrong.items()}
    for _ in range(MOST_REREADS):
        asked = list(seen)
        ranges = [_range_of(stream, packet) for stream, packet in asked]
        for key, data in zip(asked, tiers.ranges(ranges, past_caches=True), strict=True):
            stream, packet = key
            if xxhash.xxh3_64_intdigest(data) == stream.index.packet_checksum[packet]:
                right[key] = data
            elif data in seen[key]:
                lost.append(key)
            else:
                seen[key].add(data)
                continue
            del seen[key]
        if not seen:
            return right, lost
    stream, packet = next(iter(seen))
    problem = f"{stream.label}: video packet {packet} does not match its checksum"
    raise CorruptDataError(damaged_on_the_way(problem))


def _put_right(fetched: FetchedRun, right: Mapping[_Packet, bytes]) -> FetchedRun:
    packets = range(fetched.run.first_packet, fetched.run.stop_packet)
    ours = [packet for packet in packets if (fetched.stream, packet) in right]
    if not ours:
        return fetched
    data = bytearray(fetched.data)
    for packet in ours:
        data[slice(*_place(fetched, packet, packet + 1))] = right[fetched.stream, packet]
    return replace(fetched, data=bytes(data))


def _sound_parts(fetched: FetchedRun, lost: NDArray[np.int32]) -> list[FetchedRun]:
    """The shortest runs of the frames that are not lost."""
    view, frames = memoryview(fetched.data), fetched.run.frames
    return [
        replace(
            fetched,
            run=part,
            data=view[slice(*_place(fetched, part.first_packet, part.stop_packet))],
        )
        for part in fetched.stream.runs.runs(frames[lost[frames] < 0])
    ]


def _place(fetched: FetchedRun, first: int, stop: int) -> tuple[int, int]:
    """Where packets [first, stop) lie in the bytes of a run."""
    offsets = fetched.stream.packet_offsets
    begin = offsets[fetched.run.first_packet]
    return int(offsets[first] - begin), int(offsets[stop] - begin)


def _range_of(stream: CameraStream, packet: int) -> ByteRange:
    first, stop = stream.packet_offsets[packet : packet + 2].tolist()
    return ByteRange(stream.address, stream.base_offset + first, stop - first)
