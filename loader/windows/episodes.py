"""The episodes that samples are cut from, read many at a time and kept within a bound of bytes."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.errors import CorruptDataError
from lake.read import Signals, parse_signals, signal_columns
from lake.read_video import INDEX_COLUMNS, EpisodeVideos, parse_video_indexes
from lake.spec import FeatureSpec
from loader.errors import LoaderError
from loader.fetch.bad_rows import UNUSABLE, read_row_again
from loader.fetch.episodes import EPISODE_BYTES, PACKET_BYTES, CameraStream
from loader.observe.metrics import LoaderMetrics
from loader.storage.tiers import Tiers
from loader.windows.index import WindowIndex
from loader.windows.keys import SpecKeys, delivered_dtype

_CONTENT: Final = "content_sha256"


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowEpisode:
    """One episode as samples read it.

    Attributes:
        episode_id: which.
        num_steps: T.
        values: key -> [T, *shape] in the delivered dtype; text as an object array of str.
        invalid: key -> bool [T], True where there is no value; absent where all steps have one.

        streams: key -> camera; only those that the episode has.
        tasks: the task text of each step, or one text for all.
        nbytes: memory held, roughly.
    """

    episode_id: str
    num_steps: int
    values: Mapping[str, NDArray[Any]]
    invalid: Mapping[str, NDArray[np.bool_]]
    streams: Mapping[str, CameraStream]
    tasks: NDArray[Any] | str
    nbytes: int

    def task(self, step: int) -> str:
        """Task text of a step."""
        return self.tasks if isinstance(self.tasks, str) else str(self.tasks[step])


class WindowEpisodes:
    """Episodes by their row in the index, the least recently used dropped beyond `limit_bytes`."""

    def __init__(
        self,
        tiers: Tiers,
        index: WindowIndex,
        keys: Sequence[SpecKeys],
        *,
        limit_bytes: int,
        metrics: LoaderMetrics,
    ) -> None:
        self._tiers = tiers
        self._index = index
        self._keys = keys
        self._limit = limit_bytes
        self._metrics = metrics
        self._held: OrderedDict[int, WindowEpisode] = OrderedDict()
        self._bytes = 0
        self._features = sorted({f.name for spec in keys for f in spec.features.values()})
        self._video = any(spec.cameras for spec in keys)

    def load(self, rows: Sequence[int]) -> dict[int, WindowEpisode]:
        """The episodes in these rows of the index; all that are not held are read in one go.

        Raises:
            EpisodeNotFoundError: an episode was deleted from the lake.
            CorruptDataError: stored values do not match their checksum.
            LoaderError: another episode lies there now, or values do not fit their delivered dtype.
        """
        wanted = list(dict.fromkeys(rows))
        if missing := [row for row in wanted if row not in self._held]:
            self._read(missing)
        found = {}
        for row in wanted:
            self._held.move_to_end(row)
            found[row] = self._held[row]
        while self._bytes > self._limit and len(self._held) > len(wanted):
            _, dropped = self._held.popitem(last=False)
            self._bytes -= dropped.nbytes
        return found

    def _read(self, rows: Sequence[int]) -> None:
        lake = self._tiers.lake
        addresses = [int(self._index.episodes["address"][row].as_py()) for row in rows]
        columns = signal_columns(lake, self._features)
        columns = [*columns, *(INDEX_COLUMNS if self._video else ()), _CONTENT]
        self._metrics.add(requests=1)
        wanted = list(dict.fromkeys(columns))
        table = self._tiers.rows(addresses, wanted)
        try:
            read = self._parsed(table, rows, addresses, columns)
        except UNUSABLE:  # on the way, or in a cache: what the lake holds decides, row by row
            read = [
                self._read_again(row, address, columns, wanted)
                for row, address in zip(rows, addresses, strict=True)
            ]
        for row, episode in zip(rows, read, strict=True):
            self._held[row] = episode
            self._bytes += episode.nbytes

    def _read_again(
        self, row: int, address: int, columns: Sequence[str], wanted: Sequence[str]
    ) -> WindowEpisode:
        name = f"episode {self._index.episode_id(row)}"

        def parse(table: pa.Table) -> WindowEpisode:
            return self._parsed(table, [row], [address], columns)[0]

        again = read_row_again(self._tiers, address, wanted, parse, name)
        if again.content is None:
            reason = "" if again.damage is None else f": {again.damage.reason}"
            raise CorruptDataError(
                f"{name} is damaged in the lake{reason}; restore its files from a copy, or choose"
                " other episodes (`headrace doctor` lists what is damaged)"
            )
        return again.content

    def _parsed(
        self, table: pa.Table, rows: Sequence[int], addresses: Sequence[int], columns: Sequence[str]
    ) -> list[WindowEpisode]:
        lake = self._tiers.lake
        signals = parse_signals(lake, table, addresses, columns)
        videos: Sequence[EpisodeVideos | None] = [None] * len(rows)
        if self._video:
            videos = parse_video_indexes(table, addresses)
        for row, content in zip(rows, table[_CONTENT].to_pylist(), strict=True):
            if content != self._index.episodes[_CONTENT][row].as_py():
                raise LoaderError(
                    f"{lake.uri}: episode {self._index.episode_id(row)} is not at its address any"
                    " more; open the Window again"
                )
        return [
            self._episode(row, signal, video)
            for row, signal, video in zip(rows, signals, videos, strict=True)
        ]

    def _episode(self, row: int, signals: Signals, videos: EpisodeVideos | None) -> WindowEpisode:
        keys = self._keys[self._index.spec[row]]
        values, invalid = {}, {}
        for key, feature in keys.features.items():
            if feature.name not in signals.features:
                continue
            values[key] = _delivered(signals.episode_id, feature, signals.features[feature.name])
            mask = signals.valid.get(feature.name)
            if mask is not None and not mask.all():
                invalid[key] = ~mask
        streams = {}
        for number, (key, camera) in enumerate(keys.cameras.items()):
            if videos is not None and camera.name in videos.cameras:
                streams[key] = CameraStream(
                    episode=row,
                    camera=number,
                    label=f"episode {signals.episode_id}, camera {key}",
                    address=signals.address,
                    base_offset=videos.base_offsets[camera.name],
                    index=videos.cameras[camera.name],
                )
        self._count(row, signals, values)
        tasks = _tasks(signals.episode_id, values["task_index"], self._index.texts(row))
        nbytes = sum(array.nbytes for array in (*values.values(), *invalid.values()))
        packets = sum(len(stream.index.packet_size) for stream in streams.values())
        nbytes += PACKET_BYTES * packets + EPISODE_BYTES
        return WindowEpisode(
            episode_id=signals.episode_id,
            num_steps=signals.num_steps,
            values=values,
            invalid=invalid,
            streams=streams,
            tasks=tasks,
            nbytes=nbytes,
        )

    def _count(self, row: int, signals: Signals, values: dict[str, NDArray[Any]]) -> None:
        """Add the counters that the recording has not."""
        steps = np.arange(signals.num_steps, dtype=np.int64)
        if "timestamp" not in values:
            since_start = signals.timestamps_ns - signals.timestamps_ns[0]
            values["timestamp"] = (since_start / 1e9).astype(np.float32)
        values.setdefault("frame_index", steps)
        values.setdefault("episode_index", np.full_like(steps, row))
        values.setdefault("index", steps + self._index.offsets[row])
        if "task_index" not in values:
            values["task_index"] = np.full_like(steps, self._index.task_number(row))


def _delivered(episode_id: str, feature: FeatureSpec, values: NDArray[Any]) -> NDArray[Any]:
    """Values in the dtype in which samples hold them.

    Raises:
        LoaderError: a number is too large for it.
    """
    dtype = delivered_dtype(feature)
    if dtype in {"string", values.dtype.name}:
        return values
    if values.dtype == np.uint64 and values.size and values.max() > np.iinfo(np.int64).max:
        raise _too_large(episode_id, feature, dtype)
    with np.errstate(over="ignore"):
        cast: NDArray[Any] = values.astype(dtype)
    if values.dtype == np.float64 and (np.isinf(cast) & np.isfinite(values)).any():
        raise _too_large(episode_id, feature, dtype)
    return cast


def _too_large(episode_id: str, feature: FeatureSpec, dtype: str) -> LoaderError:
    return LoaderError(
        f"episode {episode_id}: {feature.name} has {feature.dtype} values too large for {dtype};"
        " leave the feature out (keys=), or the episode"
    )


def _tasks(episode_id: str, numbers: NDArray[Any], texts: list[str]) -> NDArray[Any] | str:
    """Task text per step, or the one text of all steps.

    An episode knows its texts in the order in which its steps come to them, and its steps the
    numbers of their tasks.

    Raises:
        LoaderError: the steps have several tasks, of which not all texts are known.
    """
    distinct, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    if len(distinct) == 1:
        return texts[0]
    if len(distinct) != len(texts):
        raise LoaderError(
            f"episode {episode_id}: its steps have {len(distinct)} tasks, and its labels"
            f" {len(texts)} texts; leave the episode out, or ingest it again"
        )
    in_order = np.empty(len(distinct), np.int64)
    in_order[np.argsort(first)] = np.arange(len(distinct))
    return np.array(texts, object)[in_order[which]]
