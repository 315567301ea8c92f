"""A pack with its bytes: what reading hands to decoding."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun
from loader.assembly.signals import PackSignals
from loader.bad_spans import Damage
from loader.fetch.episodes import CameraStream
from loader.fetch.images import ImageTable
from loader.fetch.plan_rows import PackRow
from loader.fetch.reuse import PackPictures


@dataclass(frozen=True, kw_only=True)
class FetchedRun:
    """Packets of one decode run, read; `index` is what the run numbers packets by."""

    stream: CameraStream
    index: VideoIndex
    run: DecodeRun
    data: bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class FetchedPack:
    """A pack with its signals and all the bytes that it decodes.

    Attributes:
        row, images, signals, pictures, runs: what it holds.
        bad: row of each bad span -> what is damaged.
        lost: of the packets read for it, those that are damaged in the lake: camera and number.
    """

    row: PackRow
    images: ImageTable
    signals: PackSignals
    pictures: PackPictures
    runs: tuple[FetchedRun, ...]
    bad: Mapping[int, Damage] = field(default_factory=dict)
    lost: tuple[tuple[CameraStream, int], ...] = ()

    def where(self, run: FetchedRun) -> str:
        """Names a span that shows pictures of a run, and their episode and camera."""
        shown = self.images.stream == self.images.streams.index(run.stream)
        return f"span {self.row.span_id[self.images.span[shown][0]]}, {run.stream.label}"
