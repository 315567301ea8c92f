"""What a batch needs to know of an episode besides its pictures: signals, and where frames lie."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import av
import numpy as np
from numpy.typing import NDArray

from lake.errors import EpisodeNotFoundError
from lake.read import Signals, parse_signals, signal_columns
from lake.read_video import INDEX_COLUMNS, EpisodeVideos, parse_video_indexes
from lake.video_index import VideoIndex
from lake.video_runs import RunTable
from loader.bad_spans import Damage
from loader.errors import LoaderError
from loader.metrics import LoaderMetrics
from loader.plan_rows import PackRow, PlanRows
from loader.signals import PackSignals, pack_signals
from loader.storage.tiers import Tiers
from packing.plan_header import PlanSpec

_CONTENT: Final = "content_sha256"
# What the index of a packet takes, its runs included, and what an episode takes besides.
_PACKET_BYTES: Final = 64
_EPISODE_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class CameraStream:
    """One camera of one episode.

    Attributes:
        episode: row of the plan's episodes.
        camera: index into the plan's cameras.
        label: names episode and camera in messages.
        address, base_offset: the row that holds its packets, and where they begin in it.
        index: its packets.
    """

    episode: int
    camera: int
    label: str
    address: int
    base_offset: int
    index: VideoIndex

    @cached_property
    def packet_offsets(self) -> NDArray[np.int64]:
        """int64 [P+1]: see `VideoIndex.packet_offsets`."""
        return self.index.packet_offsets()

    @cached_property
    def runs(self) -> RunTable:
        """Packets of every frame."""
        return RunTable.of(self.index)

    @cached_property
    def run_starts(self) -> list[int]:
        """[F]: the packet at which decoding of each frame starts; names its group of pictures."""
        starts: list[int] = self.runs.start.tolist()
        return starts

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one decoded frame, as its pixel format lies in memory."""
        bits = av.VideoFormat(self.index.pix_fmt).padded_bits_per_pixel
        return self.index.width * self.index.height * max(bits, 8) // 8


@dataclass(frozen=True, kw_only=True, eq=False)
class EpisodeData:
    """One episode as batches read it.

    Attributes:
        state: float32 [T, Ds], the spec's state features side by side, then zeros; 0 at steps that
            spans cross without a state.
        action: float32 [T, Da], likewise; 0 at invalid steps, which the loss leaves out.
        cameras: camera index of the plan -> stream, ascending.
        shown: int32 [T, C], the frame of each of these cameras at each step, -1 for none.
        nbytes: memory held, roughly.
        damage: of its row, where that cannot be read as it was written; then the signals are 0, and
            cameras whose index is lost show a stand-in (see `loader.bad_rows`).
    """

    state: NDArray[np.float32]
    action: NDArray[np.float32]
    cameras: Mapping[int, CameraStream]
    shown: NDArray[np.int32]
    nbytes: int
    damage: Damage | None = None


class EpisodeCache:
    """Episodes read for the plan, the least recently used ones dropped beyond `limit_bytes`.

    A block of coming packs is asked for (`request`), what it lacks is read (`read`, in any thread),
    and becomes its own (`add`); its packs hold their episodes from the request until they are let
    go, so that these are not dropped. The caller stops asking where held ones alone exceed the
    limit (`full`); of those still being read the plan tells the size.
    """

    def __init__(
        self, tiers: Tiers, rows: PlanRows, *, limit_bytes: int, metrics: LoaderMetrics
    ) -> None:
        self._tiers = tiers
        self._lake = tiers.lake
        self._rows = rows
        self._limit = limit_bytes
        self._metrics = metrics
        # None while it is read. Those asked for last stand last.
        self._known: OrderedDict[int, EpisodeData | None] = OrderedDict()
        self._bytes = 0
        self._holders: Counter[int] = Counter()  # episode -> coming packs that hold it
        self._holders_bytes = 0
        header = rows.plan.header
        self._state_size = max((spec.state_size for spec in header.specs), default=0)
        self._action_size = max((spec.action_size for spec in header.specs), default=0)
        self._features = sorted({f for spec in header.specs for f in (*spec.state, *spec.action)})

    def request(self, packs: Iterable[PackRow]) -> list[int]:
        """Hold the episodes of some packs; returns those that `read` and `add` have yet to bring.

        What another request has asked for before is brought by that one, which is to be added
        first.
        """
        missing = []
        for pack in packs:
            for episode in _episodes_of(pack):
                if episode not in self._known:
                    missing.append(episode)
                self._known[episode] = self._known.pop(episode, None)
                if not self._holders[episode]:
                    self._holders_bytes += self._size(episode)
                self._holders[episode] += 1
        if missing:
            self._metrics.counts["requests"] += 1
        return missing

    def read(self, episodes: Sequence[int]) -> dict[int, EpisodeData]:
        """Read episodes of the plan in one go; changes nothing here, so that any thread may.

        Raises:
            EpisodeNotFoundError: an episode was deleted from the lake.
            CorruptDataError: stored values do not match their checksum.
            LoaderError: the lake holds another episode there than the plan was made of.
        """
        if not episodes:
            return {}
        addresses = [int(self._rows.address[episode]) for episode in episodes]
        columns = signal_columns(self._lake, self._features)
        try:
            table = self._tiers.rows(addresses, [*columns, *INDEX_COLUMNS, _CONTENT])
        except EpisodeNotFoundError as error:
            raise self._missing(episodes, error) from error
        signals = parse_signals(self._lake, table, addresses, columns)
        videos = parse_video_indexes(table, addresses)
        hashes = table[_CONTENT].to_pylist()
        found = {}
        for episode, values, video, content in zip(episodes, signals, videos, hashes, strict=True):
            planned = self._rows.episode_id[episode].as_py()
            if (
                values.episode_id != planned
                or content != self._rows.content_sha256[episode].as_py()
            ):
                raise LoaderError(
                    f"{self._lake.uri}: the plan's episode {planned} is not what lies at its"
                    f" address (there is {values.episode_id}): the plan was made of another lake;"
                    " make a plan of this one"
                )
            found[episode] = self._data(episode, values, video)
        return found

    def add(self, read: Mapping[int, EpisodeData]) -> None:
        """Take in what was read for the oldest request that is not answered yet."""
        for episode, data in read.items():
            self._holders_bytes += data.nbytes - self._size(episode)
            self._known[episode] = data
            self._bytes += data.nbytes
        # Packs leave in the order in which they came, so behind a held episode all are held.
        while self._bytes > self._limit and next(iter(self._known)) not in self._holders:
            _, dropped = self._known.popitem(last=False)
            assert dropped is not None
            self._bytes -= dropped.nbytes

    def of(self, pack: PackRow) -> dict[int, EpisodeData]:
        """The episodes of a pack that was asked for, all of them here."""
        found = {}
        for episode in _episodes_of(pack):
            data = self._known[episode]
            assert data is not None
            found[episode] = data
        return found

    def let_go(self, pack: PackRow) -> None:
        """The pack that was asked for first is done with its episodes."""
        for episode in _episodes_of(pack):
            self._holders[episode] -= 1
            if not self._holders[episode]:
                del self._holders[episode]
                self._holders_bytes -= self._size(episode)

    @property
    def full(self) -> bool:
        """Whether the episodes that coming packs hold exceed the limit."""
        return self._holders_bytes > self._limit

    def signals(self, row: PackRow, episodes: Mapping[int, EpisodeData]) -> PackSignals:
        """The signals of a pack, of its episodes; any thread may ask."""
        return pack_signals(
            row,
            episodes,
            self._rows.plan.header.layout,
            state_size=self._state_size,
            action_size=self._action_size,
        )

    def _size(self, episode: int) -> int:
        """Bytes of an episode, expected ones where it is not here."""
        data = self._known[episode]
        if data is not None:
            return data.nbytes
        cameras = len(self._rows.cameras(episode))
        per_step = 4 * (self._state_size + self._action_size) + (4 + _PACKET_BYTES) * cameras
        return int(self._rows.num_steps[episode]) * per_step + _EPISODE_BYTES

    def _missing(
        self, episodes: Sequence[int], error: EpisodeNotFoundError
    ) -> EpisodeNotFoundError:
        """The error again, with the names of the episodes that are gone."""
        gone = []
        for episode in episodes:
            try:
                self._tiers.rows([int(self._rows.address[episode])], ["episode_id"])
            except EpisodeNotFoundError:
                gone.append(self._rows.episode_id[episode].as_py())
        return EpisodeNotFoundError(
            f"plan {self._rows.plan.plan_hash[:16]}: episode {', '.join(gone)} is gone: {error}"
        )

    def _data(self, episode: int, signals: Signals, videos: EpisodeVideos) -> EpisodeData:
        header = self._rows.plan.header
        spec: PlanSpec = header.specs[self._rows.spec[episode]]
        state = _side_by_side(signals, spec.state, self._state_size)
        action = _side_by_side(signals, spec.action, self._action_size)
        state[self._rows.invalid_state_steps(episode)] = 0
        action[self._rows.invalid_action_steps(episode)] = 0
        cameras = {}
        for camera in self._rows.cameras(episode).tolist():
            name = header.cameras[camera]
            if name not in videos.cameras:
                raise LoaderError(
                    f"episode {signals.episode_id}: the plan counts on camera {name}, the lake has"
                    f" {', '.join(videos.cameras) or 'none'}; make the plan again"
                )
            cameras[camera] = CameraStream(
                episode=episode,
                camera=camera,
                label=f"episode {signals.episode_id}, camera {name}",
                address=signals.address,
                base_offset=videos.base_offsets[name],
                index=videos.cameras[name],
            )
        shown = np.empty((signals.num_steps, len(cameras)), np.int32)
        for column, stream in enumerate(cameras.values()):
            shown[:, column] = stream.index.step_to_frame
        packets = sum(len(stream.index.packet_size) for stream in cameras.values())
        return EpisodeData(
            state=state,
            action=action,
            cameras=cameras,
            shown=shown,
            nbytes=state.nbytes
            + action.nbytes
            + shown.nbytes
            + _PACKET_BYTES * packets
            + _EPISODE_BYTES,
        )


def _episodes_of(pack: PackRow) -> dict[int, None]:
    """The episodes of a pack, each once, in the order of its spans."""
    return dict.fromkeys(pack.episode.tolist())


def _side_by_side(signals: Signals, features: Sequence[str], size: int) -> NDArray[np.float32]:
    """float32 [T, size]: features flattened per step, in order, zeros to the right."""
    steps = signals.num_steps
    out = np.zeros((steps, size), np.float32)
    column = 0
    for name in features:
        if name not in signals.features:
            raise LoaderError(
                f"episode {signals.episode_id}: the plan counts on feature {name}, which the lake"
                " does not have for it; make the plan again"
            )
        values = signals.features[name].reshape(steps, -1)
        out[:, column : column + values.shape[1]] = values
        column += values.shape[1]
    return out
