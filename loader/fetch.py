"""Reading ahead: which packs come next, and the bytes that a window of them needs.

A call to storage costs about a millisecond whatever is in it, so signals and frame indexes are read
for a block of packs at a time, and the packets of a whole window of packs in one call.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lake.read_video import ByteRange
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun
from loader.cursor import Cursor
from loader.episodes import CameraStream, EpisodeCache, EpisodeData
from loader.images import ImageTable, image_table
from loader.metrics import LoaderMetrics
from loader.plan_rows import PackRow, PlanRows
from loader.reuse import PackPictures, Reuse
from loader.signals import PackSignals
from loader.storage.tiers import Tiers

WINDOW_PACKS: Final = 8
_MOST_LOOK_AHEAD_PACKS: Final = 256
_MOST_LOOK_AHEAD_IMAGES: Final = 1 << 14


@dataclass(frozen=True, kw_only=True)
class ComingPack:
    """A pack whose signals and frame indexes are here."""

    row: PackRow
    episodes: Mapping[int, EpisodeData]
    images: ImageTable


@dataclass(frozen=True, kw_only=True)
class FetchedRun:
    """Packets of one decode run, read; `index` is what the run numbers packets by."""

    stream: CameraStream
    index: VideoIndex
    run: DecodeRun
    data: bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class FetchedPack:
    """A pack with its signals and all the bytes that it decodes."""

    row: PackRow
    images: ImageTable
    signals: PackSignals
    pictures: PackPictures
    runs: tuple[FetchedRun, ...]

    def where(self, run: FetchedRun) -> str:
        """Names a span that shows pictures of a run, and their episode and camera."""
        shown = self.images.stream == self.images.streams.index(run.stream)
        return f"span {self.row.span_id[self.images.span[shown][0]]}, {run.stream.label}"


@dataclass(frozen=True, kw_only=True)
class FetchLimits:
    """Bytes that reading ahead may hold.

    Attributes:
        packet_bytes: packets of a window; a single pack may exceed it.
        kept_frame_bytes: decoded frames kept for coming packs.
        episode_bytes: signals and indexes of the episodes of coming packs and of earlier ones.
    """

    packet_bytes: int
    kept_frame_bytes: int
    episode_bytes: int


class Fetcher:
    """Yields the packs of some blocks of positions with their bytes."""

    def __init__(
        self,
        tiers: Tiers,
        rows: PlanRows,
        cursor: Cursor,
        limits: FetchLimits,
        metrics: LoaderMetrics,
    ) -> None:
        self._tiers = tiers
        self._rows = rows
        self._cursor = cursor
        self._limits = limits
        self._metrics = metrics
        self._cache = EpisodeCache(tiers, rows, limit_bytes=limits.episode_bytes, metrics=metrics)
        self._reuse = Reuse(limits.kept_frame_bytes)
        self._coming: deque[ComingPack] = deque()
        self._coming_images = 0
        # It grows from one window, so that the first batch does not wait for it.
        self._most_look_ahead = most_look_ahead(rows, cursor)
        self._look_ahead = 0

    def packs(self, blocks: Iterable[range]) -> Iterator[FetchedPack]:
        """The packs at these positions, in order.

        Raises:
            LakeError, LoaderError: see `EpisodeCache.load`, `image_table`, `read_ranges`.
        """
        upcoming = iter(blocks)
        while True:
            with self._metrics.stage("plan"):
                self._look(upcoming)
            if not self._coming:
                return
            yield from self._window()

    def _look(self, blocks: Iterator[range]) -> None:
        """Learn of coming packs until the window and its look-ahead are known."""
        while (
            len(self._coming) < WINDOW_PACKS + self._look_ahead
            and self._coming_images < _MOST_LOOK_AHEAD_IMAGES
            and not self._cache.full
        ) or not self._coming:
            block = next(blocks, None)
            if block is None:
                break
            rows = self._rows.read([self._cursor.place(position) for position in block])
            episodes = self._cache.load(e for row in rows for e in row.episode.tolist())
            for row in rows:
                ours = {episode: episodes[episode] for episode in row.episode.tolist()}
                self._cache.hold(ours)
                table = image_table(row, ours)
                self._reuse.enter(table)
                self._coming.append(ComingPack(row=row, episodes=ours, images=table))
                self._coming_images += len(table)
        self._look_ahead = min(max(2 * self._look_ahead, WINDOW_PACKS), self._most_look_ahead)

    def _window(self) -> Iterator[FetchedPack]:
        """Plan and read the next few packs."""
        with self._metrics.stage("plan"):
            planned: list[tuple[ComingPack, PackPictures, list[tuple[CameraStream, DecodeRun]]]]
            planned = []
            ranges: list[ByteRange] = []
            held = 0
            while self._coming and len(planned) < WINDOW_PACKS and held < self._limits.packet_bytes:
                coming = self._coming.popleft()
                self._cache.let_go(coming.episodes)
                self._coming_images -= len(coming.images)
                pictures = self._reuse.plan(coming.images)
                runs = [
                    (stream, run)
                    for stream, frames in pictures.decode.items()
                    for run in stream.runs.runs(frames)
                ]
                wanted = [_byte_range(stream, run) for stream, run in runs]
                held += sum(part.length for part in wanted)
                ranges += wanted
                planned.append((coming, pictures, runs))
        with self._metrics.stage("fetch"):
            parts = iter(self._tiers.ranges(ranges))
        if ranges:
            self._metrics.counts["requests"] += 1
        self._metrics.counts["bytes_read"] += held
        for coming, pictures, runs in planned:
            yield FetchedPack(
                row=coming.row,
                images=coming.images,
                signals=self._cache.signals(coming.row, coming.episodes),
                pictures=pictures,
                runs=tuple(
                    FetchedRun(stream=stream, index=stream.index, run=run, data=next(parts))
                    for stream, run in runs
                ),
            )


def most_look_ahead(rows: PlanRows, cursor: Cursor) -> int:
    """Packs within which, as the plan says, frames of a run are shown again; within reason."""
    reach = rows.plan.header.run_steps * cursor.packs_per_step
    return min(max(reach, WINDOW_PACKS), _MOST_LOOK_AHEAD_PACKS)


def _byte_range(stream: CameraStream, run: DecodeRun) -> ByteRange:
    offsets = stream.packet_offsets
    first, stop = int(offsets[run.first_packet]), int(offsets[run.stop_packet])
    return ByteRange(stream.address, stream.base_offset + first, stop - first)
