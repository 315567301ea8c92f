"""Packets read together with those beside them, and held until the packs that decode them.

The windows of a run come one after the other over many packs, and each needs the groups of pictures
next to those of the one before. The plan tells which coming packs need which, so the first of them
reads what lies back to back in one request, and the others read nothing. Packets are small: what
is held is the price of a few decoded frames.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from weakref import WeakSet

from lake.read_video import ByteRange
from lake.video_runs import DecodeRun
from loader.fetch.episodes import CameraStream

_Packets = tuple[int, int]  # from the first up to the second


class PacketRead:
    """One range of a camera's packets, and its bytes once they are there.

    Args:
        stream: the camera.
        first_packet: of the range.
        stop_packet: after it.
    """

    def __init__(self, stream: CameraStream, first_packet: int, stop_packet: int) -> None:
        offsets = stream.packet_offsets
        self.stream = stream
        self._first, self._stop = first_packet, stop_packet
        begin = int(offsets[first_packet])
        length = int(offsets[stop_packet]) - begin
        self.range = ByteRange(stream.address, stream.base_offset + begin, length)
        self._data: Future[bytes] = Future()

    def has(self, run: DecodeRun) -> bool:
        """Whether a run's packets are among these."""
        return self._first <= run.first_packet and run.stop_packet <= self._stop

    def part(self, run: DecodeRun) -> memoryview:
        """The bytes of a run; waits for them.

        Raises:
            BaseException: what the read raised.
        """
        offsets = self.stream.packet_offsets
        base = int(offsets[self._first])
        data = memoryview(self._data.result())
        return data[int(offsets[run.first_packet]) - base : int(offsets[run.stop_packet]) - base]

    def part_bytes(self, run: DecodeRun) -> int:
        """How many bytes the packets of a run have."""
        offsets = self.stream.packet_offsets
        return int(offsets[run.stop_packet] - offsets[run.first_packet])

    def arrived(self, data: bytes) -> None:
        """The bytes are there."""
        with suppress(InvalidStateError):  # given up meanwhile
            self._data.set_result(data)

    def failed(self, error: BaseException) -> None:
        """They will not come; who waits for them gets this error."""
        with suppress(InvalidStateError):
            self._data.set_exception(error)


class HeldPackets:
    """Plans what each pack reads, in the order of packs.

    Args:
        limit_bytes: of packets that are read before their packs are planned; what does not fit
            is read when its packs are.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        # What is held -> packets of it that no pack has been planned for yet.
        self._held: dict[PacketRead, list[_Packets]] = {}
        self._of: dict[CameraStream, list[PacketRead]] = {}
        self._unfinished: WeakSet[PacketRead] = WeakSet()

    @property
    def nbytes(self) -> int:
        """Bytes held for coming packs, with those that they lie among."""
        return self._bytes

    def plan(
        self,
        stream: CameraStream,
        runs: Sequence[DecodeRun],
        coming: Callable[[], Sequence[DecodeRun]],
    ) -> list[tuple[PacketRead, bool]]:
        """Of each run of the next pack, the read that brings it, and whether that is a new one.

        A run of which only a part is held is read anew: what a pack decodes does not depend on what
        was read before, so that materialised packs are the same however the work was divided.

        Args:
            stream: the camera.
            runs: what the pack decodes, ascending.
            coming: the runs that known coming packs will decode, ascending; asked for only where
                something has to be read.
        """
        found: list[tuple[PacketRead, bool]] = []
        beside: Sequence[DecodeRun] | None = None
        for run in runs:
            read = next((held for held in self._of.get(stream, ()) if held.has(run)), None)
            is_new = read is None
            for held in self._of.get(stream, [])[:]:
                self._use(held, run)  # what lies in both will not be asked for again
            if read is None:
                if beside is None:
                    beside = coming()
                read = self._read(stream, run, beside)
            found.append((read, is_new))
        return found

    def forget(self, stream: CameraStream) -> None:
        """No coming pack shows anything of a camera."""
        for read in self._of.pop(stream, ()):
            del self._held[read]
            self._bytes -= read.range.length

    def close(self) -> None:
        """Nothing more is read: who waits for bytes gets an error."""
        self._held.clear()
        self._of.clear()
        self._bytes = 0
        for read in list(self._unfinished):
            read.failed(CancelledError("reading has ended"))

    def _read(
        self, stream: CameraStream, run: DecodeRun, beside: Sequence[DecodeRun]
    ) -> PacketRead:
        """A new read of a run, and of what coming packs need back to back with it."""
        first, stop = run.first_packet, run.stop_packet
        wanted = [(other.first_packet, other.stop_packet) for other in beside]
        for held in self._of.get(stream, ()):
            for part in self._held[held]:
                wanted = _without(wanted, *part)
        taken: list[_Packets] = []
        for other in wanted:  # ascending: onwards from the run
            if first <= other[0] <= stop:
                taken.append(other)
                stop = max(stop, other[1])
        for other in reversed(wanted):  # and back from it
            if other[0] < first <= other[1]:
                taken.append(other)
                first = other[0]
        read = PacketRead(stream, first, stop)
        later = _without(taken, run.first_packet, run.stop_packet)
        if later and self._bytes + read.range.length <= self._limit:
            self._held[read] = later
            self._of.setdefault(stream, []).append(read)
            self._bytes += read.range.length
        else:
            read = PacketRead(stream, run.first_packet, run.stop_packet)
        self._unfinished.add(read)
        return read

    def _use(self, read: PacketRead, run: DecodeRun) -> None:
        left = _without(self._held[read], run.first_packet, run.stop_packet)
        self._held[read] = left
        if left:
            return
        del self._held[read]
        self._bytes -= read.range.length
        self._of[read.stream].remove(read)
        if not self._of[read.stream]:
            del self._of[read.stream]


def _without(parts: Sequence[_Packets], first: int, stop: int) -> list[_Packets]:
    """Ranges of packets less those from `first` up to `stop`."""
    left = []
    for begin, end in parts:
        before, behind = (begin, min(end, first)), (max(begin, stop), end)
        left += [part for part in (before, behind) if part[0] < part[1]]
    return left
