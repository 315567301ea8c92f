"""Reading ahead: which packs come next, and the bytes that a window of them needs.

Three kinds of reads run in threads while earlier packs are decoded: the plan's rows, the signals
and frame indexes of a block of packs, and the packets of a window of packs. What to read is planned
in the one thread that asks for packs, in their order, so that it follows from the plan alone.

A call to storage costs about a millisecond whatever is in it, hence blocks and windows.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from lake.video_runs import DecodeRun
from loader.bad_spans import Damage
from loader.cursor import Cursor
from loader.fetch.episode_cache import EpisodeCache
from loader.fetch.episodes import CameraStream, EpisodeData
from loader.fetch.fetched import FetchedPack
from loader.fetch.held_packets import HeldPackets, PacketRead
from loader.fetch.images import ImageTable, image_table
from loader.fetch.needed_bytes import NeededBytes
from loader.fetch.plan_rows import PackRow, PlanRows
from loader.fetch.planned_pack import Inspect, PlannedPack, read_window
from loader.fetch.read_ahead import ReadAhead
from loader.fetch.reuse import Reuse
from loader.observe.metrics import LoaderMetrics
from loader.storage.tiers import Tiers

WINDOW_PACKS: Final = 8
_MOST_LOOK_AHEAD_PACKS: Final = 256
_MOST_LOOK_AHEAD_IMAGES: Final = 1 << 14
# Under way at once: blocks of packs, and the share of the packets' bytes that one read may take, so
# that several are.
_MOST_BLOCKS: Final = 8
_WINDOW_SHARE: Final = 4
_HELD_SHARE: Final = 4  # of the packets' bytes, what may be those of coming packs
_MOST_WINDOWS: Final = 4
_THREADS: Final = 4


@dataclass(frozen=True, kw_only=True)
class ComingPack:
    """A pack whose signals and frame indexes are here."""

    row: PackRow
    episodes: Mapping[int, EpisodeData]
    images: ImageTable

    @property
    def bad(self) -> dict[int, Damage]:
        """Row of each span whose episode's row is damaged -> its damage."""
        damage = {e: data.damage for e, data in self.episodes.items() if data.damage is not None}
        spans = enumerate(self.row.episode.tolist()) if damage else ()
        return {span: damage[episode] for span, episode in spans if episode in damage}


@dataclass(frozen=True, kw_only=True)
class FetchLimits:
    """Bytes that reading ahead may hold.

    Attributes:
        packet_bytes: packets from the start of their read until they are decoded, with the signals
            of their packs; a single pack may exceed it. A quarter of it is for packets read early.
        kept_frame_bytes: decoded frames kept for coming packs.
        episode_bytes: signals and indexes of the episodes of coming packs and of earlier ones.
    """

    packet_bytes: int
    kept_frame_bytes: int
    episode_bytes: int


class Fetcher:
    """Yields the packs of some blocks of positions with their bytes.

    Args:
        tiers: where to read.
        rows: the plan's tables.
        cursor: what positions mean.
        limits: of what is read ahead.
        metrics: where to count.
        inspect: see `Inspect`; what it raises surfaces at the window of the pack.
    """

    def __init__(
        self,
        tiers: Tiers,
        rows: PlanRows,
        cursor: Cursor,
        limits: FetchLimits,
        metrics: LoaderMetrics,
        inspect: Inspect = lambda pack: pack,
    ) -> None:
        self._tiers = tiers
        self._rows = rows
        self._cursor = cursor
        self._metrics = metrics
        self._inspect = inspect
        self._cache = EpisodeCache(tiers, rows, limit_bytes=limits.episode_bytes, metrics=metrics)
        self._reuse = Reuse(limits.kept_frame_bytes)
        held_bytes = limits.packet_bytes // _HELD_SHARE
        self._window_bytes = limits.packet_bytes - held_bytes
        self._held = HeldPackets(held_bytes)
        self._needed = NeededBytes()
        self._blocks = ReadAhead[list[PackRow]]("plan", 1)
        self._loads = ReadAhead[_Block]("rows", _THREADS)
        self._windows = ReadAhead[deque[FetchedPack]](
            "video", _THREADS, limit_bytes=self._window_bytes
        )
        self._loaded = 0  # blocks
        self._coming: deque[ComingPack] = deque()
        self._coming_images = 0
        self._planned: deque[list[PlannedPack]] = deque()  # windows, not yet being read
        self._open: deque[FetchedPack] = deque()  # the window that is handed out
        self._failed: Exception | None = None
        # It grows from one window, so that the first batch does not wait for it.
        self._most_look_ahead = most_look_ahead(rows, cursor)
        self._look_ahead = 0

    def packs(self, blocks: Iterable[range]) -> Generator[FetchedPack]:
        """The packs at these positions, in order; to be asked for once.

        An error comes behind all packs of the windows before it.

        Raises:
            LakeError, LoaderError: see `EpisodeCache.read`, `image_table`, `Tiers.ranges`.
        """
        upcoming = iter(blocks)
        with (
            closing(self._blocks),
            closing(self._loads),
            closing(self._windows),
            closing(self._held),
        ):
            while True:
                self._read_ahead(upcoming)
                if not self._open and not self._next_window():
                    if self._failed is not None:
                        raise self._failed
                    return
                yield self._open.popleft()

    def _next_window(self) -> bool:
        """Wait for the next window; False at the end."""
        self._windows.release()
        self._start_windows()
        if not self._windows:
            return False
        with self._metrics.stage("fetch"):
            self._open = self._windows.take()
        return True

    def _read_ahead(self, upcoming: Iterator[range]) -> None:
        """Plan the next window, more while none is here, and start to read as bytes have room.

        It waits for what a window needs to be planned only where there is no other.
        """
        for planned in count():
            self._start_windows()
            if self._planned or len(self._windows) >= _MOST_WINDOWS:
                return
            if planned and (self._open or self._windows.ready):
                return
            if not self._look(upcoming, wait=not (self._open or self._windows)):
                return
            if not self._coming:
                return
            try:
                with self._metrics.stage("plan"):
                    self._plan_window()
            except Exception as error:  # noqa: BLE001  # raised when it is its turn
                self._coming.clear()
                self._fail(error)

    def _look(self, upcoming: Iterator[range], *, wait: bool) -> bool:
        """Learn of coming packs until the window and its look-ahead are known.

        Returns:
            False where that would have to wait.
        """
        while (
            len(self._coming) < WINDOW_PACKS + self._look_ahead
            and self._coming_images < _MOST_LOOK_AHEAD_IMAGES
        ) or not self._coming:
            self._start_loads(upcoming)
            if not self._loads:
                break
            if not (wait or self._loads.ready):
                return False
            try:
                with self._metrics.stage("fetch"):
                    block = self._loads.take()
                with self._metrics.stage("plan"):
                    self._enter(block)
            except Exception as error:  # noqa: BLE001  # raised when it is its turn
                self._fail(error)
        return True

    def _start_loads(self, upcoming: Iterator[range]) -> None:
        """Start to read the next blocks, as far as memory allows; at first one alone."""
        most = min(2 * self._loaded + 1, _MOST_BLOCKS)
        while len(self._loads) < most and not (self._cache.full and (self._coming or self._loads)):
            if self._failed is not None:
                return
            while len(self._blocks) < most and (block := next(upcoming, None)) is not None:
                self._blocks.start(partial(_read_rows, self._rows, self._cursor, block))
            if not self._blocks:
                return
            try:
                with self._metrics.stage("fetch"):
                    rows = self._blocks.take()
            except Exception as error:  # noqa: BLE001  # raised when it is its turn
                self._failed = error
                return
            with self._metrics.stage("plan"):
                missing = self._cache.request(rows)
                self._loads.start(partial(_load, self._cache, rows, missing))

    def _fail(self, error: Exception) -> None:
        """Nothing comes behind what is known; a failure found before is of a later pack."""
        self._failed = error
        self._loads.close()

    def _enter(self, block: "_Block") -> None:
        """The next block of packs is known."""
        self._loaded += 1
        self._cache.add(block.read)
        for row in block.rows:
            episodes = self._cache.of(row)
            table = image_table(row, episodes)
            self._reuse.enter(table)
            self._coming.append(ComingPack(row=row, episodes=episodes, images=table))
            self._coming_images += len(table)

    def _plan_window(self) -> None:
        """Plan the next few packs; where they are of many bytes, they are read in several parts."""
        first = self._look_ahead == 0
        self._look_ahead = min(max(2 * self._look_ahead, WINDOW_PACKS), self._most_look_ahead)
        held = 0
        # The first pack waits for its own packets alone.
        beside = self._nothing if first else self._coming_runs
        for number in range(min(WINDOW_PACKS, len(self._coming))):
            coming = self._coming.popleft()
            self._cache.let_go(coming.row)
            self._coming_images -= len(coming.images)
            pictures = self._reuse.plan(coming.images)
            runs: list[tuple[DecodeRun, PacketRead]] = []
            reads: list[PacketRead] = []
            needed = 0
            for stream, frames in pictures.decode.items():
                ours = stream.runs.runs(frames)
                found = self._held.plan(stream, ours, partial(beside, stream))
                for run, (read, is_new) in zip(ours, found, strict=True):
                    runs.append((run, read))
                    if is_new:
                        reads.append(read)
                needed += self._needed.add(stream, ours, coming.row.epoch)
            for stream in coming.images.streams:
                if not self._reuse.expects(stream):
                    self._held.forget(stream)
            pack = PlannedPack(
                row=coming.row,
                images=coming.images,
                signals=self._cache.signals(coming.row, coming.episodes),
                pictures=pictures,
                runs=runs,
                reads=reads,
                needed_bytes=needed,
                bad=coming.bad,
            )
            held += pack.nbytes
            # The first batch waits for the packets of its own pack alone.
            alone = number <= 1 if first else number == 0
            if alone or held > self._window_bytes // _WINDOW_SHARE:
                self._planned.append([])
                held = pack.nbytes
            self._planned[-1].append(pack)

    def _nothing(self, _stream: CameraStream) -> Sequence[DecodeRun]:
        return ()

    def _coming_runs(self, stream: CameraStream) -> Sequence[DecodeRun]:
        return stream.runs.runs(self._reuse.coming(stream))

    def _start_windows(self) -> None:
        while self._planned:
            window = self._planned[0]
            nbytes = sum(pack.nbytes for pack in window)
            if not self._windows.fits(nbytes):
                return
            self._windows.start(partial(read_window, self._tiers, self._inspect, window), nbytes)
            self._planned.popleft()
            self._metrics.add(
                requests=any(pack.reads for pack in window),
                bytes_read=sum(pack.read_bytes for pack in window),
                needed_bytes=sum(pack.needed_bytes for pack in window),
            )


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Packs that come together, and what was read of their episodes."""

    rows: list[PackRow]
    read: Mapping[int, EpisodeData]


def _read_rows(rows: PlanRows, cursor: Cursor, block: range) -> list[PackRow]:
    return rows.read([cursor.place(position) for position in block])


def _load(cache: EpisodeCache, rows: list[PackRow], missing: Sequence[int]) -> _Block:
    return _Block(rows=rows, read=cache.read(missing))


def most_look_ahead(rows: PlanRows, cursor: Cursor) -> int:
    """Packs within which, as the plan says, frames of a run are shown again; within reason."""
    reach = rows.plan.header.run_steps * cursor.packs_per_step
    return min(max(reach, WINDOW_PACKS), _MOST_LOOK_AHEAD_PACKS)
