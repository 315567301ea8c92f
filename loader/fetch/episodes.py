"""What a batch needs to know of an episode besides its pictures: signals, and where frames lie."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import av
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.errors import EpisodeNotFoundError
from lake.read import Signals, parse_signals, signal_columns
from lake.read_video import INDEX_COLUMNS, EpisodeVideos, parse_video_indexes
from lake.video_index import VideoIndex
from lake.video_runs import RunTable
from loader.bad_spans import Damage
from loader.errors import LoaderError
from loader.fetch.bad_rows import UNUSABLE, Reread, picture_sizes, read_row_again, stand_in
from loader.fetch.plan_rows import PlanRows
from loader.storage.tiers import Tiers
from packing.plan_header import PlanSpec

_CONTENT: Final = "content_sha256"
# What the index of a packet takes, its runs included, and what an episode takes besides.
PACKET_BYTES: Final = 64
EPISODE_BYTES: Final = 4096


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
            cameras whose index is lost show a stand-in (see `loader.fetch.bad_rows`).
    """

    state: NDArray[np.float32]
    action: NDArray[np.float32]
    cameras: Mapping[int, CameraStream]
    shown: NDArray[np.int32]
    nbytes: int
    damage: Damage | None = None


class EpisodeReader:
    """Reads episodes of a plan; from any thread.

    Args:
        tiers: of the lake, pinned to the plan's versions.
        rows: the plan's tables.
    """

    def __init__(self, tiers: Tiers, rows: PlanRows) -> None:
        self._tiers = tiers
        self._lake = tiers.lake
        self._rows = rows
        header = rows.plan.header
        self._state_size = max((spec.state_size for spec in header.specs), default=0)
        self._action_size = max((spec.action_size for spec in header.specs), default=0)
        self._specs: set[str] = set()
        self._features = sorted({f for spec in header.specs for f in (*spec.state, *spec.action)})

    def read(self, episodes: Sequence[int]) -> dict[int, EpisodeData]:
        """Read episodes of the plan in one go; more reads follow only where a row is damaged.

        A row that is damaged in the lake is no error here: see `EpisodeData.damage`.

        Raises:
            EpisodeNotFoundError: an episode was deleted from the lake.
            LoaderError: the lake holds another episode there than the plan was made of.
            CorruptDataError: a row is damaged on the way, or a spec in the lake.
        """
        if not episodes:
            return {}
        addresses = [self._address(episode) for episode in episodes]
        self._require_specs({self._spec(episode).spec_id for episode in episodes})
        columns = self._tiers.read(
            "the table of episodes", partial(signal_columns, self._lake, self._features)
        )
        wanted = list(dict.fromkeys([*columns, *INDEX_COLUMNS, _CONTENT]))
        try:
            table = self._tiers.rows(addresses, wanted)
        except EpisodeNotFoundError as error:
            raise self._missing(episodes, error) from error
        found = {}
        for number, episode in enumerate(episodes):
            parse = partial(self._parsed, episode, columns)
            try:
                found[episode] = parse(table.slice(number, 1))
            except UNUSABLE:
                again = read_row_again(
                    self._tiers, self._address(episode), wanted, parse, self._name(episode)
                )
                found[episode] = (
                    self._damaged(episode, again) if again.content is None else again.content
                )
        return found

    def _require_specs(self, spec_ids: Collection[str]) -> None:
        """Read specs, which the lake keeps: what is wrong with one is not the episode's fault."""
        for spec_id in sorted(set(spec_ids) - self._specs):
            self._tiers.read(f"spec {spec_id}", partial(self._lake.spec, spec_id))
            self._specs.add(spec_id)

    def _address(self, episode: int) -> int:
        return int(self._rows.address[episode])

    def _spec(self, episode: int) -> PlanSpec:
        spec: PlanSpec = self._rows.plan.header.specs[self._rows.spec[episode]]
        return spec

    def _name(self, episode: int) -> str:
        return f"episode {self._rows.episode_id[episode].as_py()}"

    def _missing(
        self, episodes: Sequence[int], error: EpisodeNotFoundError
    ) -> EpisodeNotFoundError:
        """The error again, with the names of the episodes that are gone."""
        gone = []
        for episode in episodes:
            try:
                self._tiers.rows([self._address(episode)], ["episode_id"])
            except EpisodeNotFoundError:
                gone.append(self._rows.episode_id[episode].as_py())
        plan = f"plan {self._rows.plan.plan_hash[:16]}"
        if not gone:  # a look at each by itself found them
            return EpisodeNotFoundError(
                f"{plan}: rows were missing, and now 0 of the {len(episodes)} episodes are gone;"
                f" look at the store, then go on from the last saved position: {error}"
            )
        return EpisodeNotFoundError(f"{plan}: episode {', '.join(gone)} is gone: {error}")

    def _parsed(self, episode: int, columns: Sequence[str], row: pa.Table) -> EpisodeData:
        """What a row says.

        Raises:
            Exception: one of `UNUSABLE`.
        """
        address = [self._address(episode)]
        (signals,) = parse_signals(self._lake, row, address, columns)
        (videos,) = parse_video_indexes(row, address)
        planned = self._rows.episode_id[episode].as_py()
        content = self._rows.content_sha256[episode].as_py()
        if signals.episode_id != planned or row[_CONTENT][0].as_py() != content:
            raise LoaderError(
                f"{self._lake.uri}: the plan's episode {planned} is not what lies at its"
                f" address (there is {signals.episode_id}): the plan was made of another lake;"
                " make a plan of this one"
            )
        spec = self._spec(episode)
        state = _side_by_side(signals, spec.state, self._state_size)
        action = _side_by_side(signals, spec.action, self._action_size)
        state[self._rows.invalid_state_steps(episode)] = 0
        action[self._rows.invalid_action_steps(episode)] = 0
        for name in self._cameras(episode).values():
            if name not in videos.cameras:
                raise LoaderError(
                    f"episode {signals.episode_id}: the plan counts on camera {name}, the lake has"
                    f" {', '.join(videos.cameras) or 'none'}; make the plan again"
                )
        return self._data(episode, state, action, videos)

    def _damaged(self, episode: int, found: Reread[EpisodeData]) -> EpisodeData:
        """What plan and lake still say of an episode whose row is damaged."""
        address, steps = self._address(episode), int(self._rows.num_steps[episode])
        names = list(self._cameras(episode).values())
        try:
            (videos,) = parse_video_indexes(found.row, [address])
            if any(len(videos.cameras[name].step_to_frame) != steps for name in names):
                raise ValueError(names)
        except (*UNUSABLE, KeyError):
            sizes = picture_sizes(found.row, self._lake.spec(self._spec(episode).spec_id), names)
            indexes = {name: stand_in(*size, steps) for name, size in sizes.items()}
            videos = EpisodeVideos("", address, indexes, dict.fromkeys(names, 0))
        state = np.zeros((steps, self._state_size), np.float32)
        action = np.zeros((steps, self._action_size), np.float32)
        return self._data(episode, state, action, videos, found.damage)

    def _cameras(self, episode: int) -> dict[int, str]:
        """Cameras that the plan counts on, ascending, with their names."""
        names = self._rows.plan.header.cameras
        return {camera: names[camera] for camera in self._rows.cameras(episode).tolist()}

    def _data(
        self,
        episode: int,
        state: NDArray[np.float32],
        action: NDArray[np.float32],
        videos: EpisodeVideos,
        damage: Damage | None = None,
    ) -> EpisodeData:
        cameras = {
            camera: CameraStream(
                episode=episode,
                camera=camera,
                label=f"{self._name(episode)}, camera {name}",
                address=videos.address,
                base_offset=videos.base_offsets[name],
                index=videos.cameras[name],
            )
            for camera, name in self._cameras(episode).items()
        }
        shown = np.empty((len(state), len(cameras)), np.int32)
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
            + PACKET_BYTES * packets
            + EPISODE_BYTES,
            damage=damage,
        )


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
