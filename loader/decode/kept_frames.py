"""Decoded frames of runs of steps, kept for samples that will show their neighbours soon."""

from collections import OrderedDict
from collections.abc import Iterable

from av.video.frame import VideoFrame

from loader.fetch.episodes import CameraStream

_Run = tuple[int, int, int]


class KeptFrames:
    """Frames by run, the least recently shown runs dropped beyond `limit_bytes`.

    A run is `run_frames` frames in a row of one camera of one episode, counted from its first.
    Frames are kept as the decoder gave them.

    Args:
        run_frames: frames of a run.
        limit_bytes: bound of what is kept.
    """

    def __init__(self, run_frames: int, limit_bytes: int) -> None:
        self._run_frames = run_frames
        self._limit = limit_bytes
        self._held: OrderedDict[_Run, dict[int, VideoFrame]] = OrderedDict()
        self._bytes = 0

    def take(self, stream: CameraStream, frames: Iterable[int]) -> dict[int, VideoFrame]:
        """Those of the frames that are kept."""
        found = {}
        for frame in frames:
            run = self._run(stream, frame)
            if frame in self._held.get(run, ()):
                self._held.move_to_end(run)
                found[frame] = self._held[run][frame]
        return found

    def whole_runs(self, stream: CameraStream, frames: Iterable[int]) -> set[int]:
        """All frames of the runs of the given ones."""
        size, last = self._run_frames, stream.runs.num_frames
        starts = {frame // size * size for frame in frames}
        return {frame for start in starts for frame in range(start, min(start + size, last))}

    def keep(self, stream: CameraStream, frames: dict[int, VideoFrame]) -> None:
        """Keep frames that were decoded."""
        for number, frame in frames.items():
            run = self._run(stream, number)
            held = self._held.setdefault(run, {})
            self._bytes += 0 if number in held else _nbytes(frame)
            held[number] = frame
            self._held.move_to_end(run)
        while self._bytes > self._limit:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= sum(_nbytes(frame) for frame in dropped.values())

    def _run(self, stream: CameraStream, frame: int) -> _Run:
        return stream.episode, stream.camera, frame // self._run_frames


def _nbytes(frame: VideoFrame) -> int:
    bits = max(frame.format.padded_bits_per_pixel, 8)
    return frame.width * frame.height * bits // 8
