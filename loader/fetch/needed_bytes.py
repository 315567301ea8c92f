"""How many bytes of packets the shown frames need, whatever is read for them in the end."""

from array import array
from collections.abc import Iterable
from itertools import pairwise
from weakref import WeakKeyDictionary

from lake.video_runs import DecodeRun
from loader.fetch.episodes import CameraStream


class NeededBytes:
    """Counts each packet once in an epoch, when it is needed first.

    What is read beyond that is read again (a group of pictures whose frames are shown further apart
    than the look-ahead), or lies between what is needed. Streams that nobody holds any more are
    forgotten: after an episode was dropped and read anew, its packets count once more.
    """

    def __init__(self) -> None:
        self._epoch = -1
        # Of the packets where decoding starts, the packet up to which their group was needed.
        self._needed_to = WeakKeyDictionary[CameraStream, "array[int]"]()

    def add(self, stream: CameraStream, runs: Iterable[DecodeRun], epoch: int) -> int:
        """Bytes of some runs' packets that were not needed in this epoch before; now they were."""
        if epoch != self._epoch:
            self._needed_to.clear()
            self._epoch = epoch
        needed_to = self._needed_to.get(stream)
        if needed_to is None:
            needed_to = array("i", bytes(4 * len(stream.index.packet_size)))
            self._needed_to[stream] = needed_to
        offsets, starts = stream.packet_offsets, stream.run_starts
        fresh = 0
        for run in runs:
            groups = {starts[frame] for frame in run.frames.tolist()}
            for start, stop in pairwise([*sorted(groups), run.stop_packet]):
                before = max(start, needed_to[start])
                if stop > before:
                    fresh += int(offsets[stop] - offsets[before])
                    needed_to[start] = stop
        return fresh
