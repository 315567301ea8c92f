"""Samples as numpy arrays: the steps around one step of an episode, for many samples at a time.

What a batch of samples needs is read together: episodes that are not held in one call, packets in
another, and each run of packets is decoded once for all samples that show its frames.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import CorruptDataError, VideoError
from lake.pixels import PixelConverter
from lake.read_video import ByteRange
from lake.video_decode import FrameDecoder
from lake.video_runs import DecodeRun
from loader.decode.kept_frames import KeptFrames
from loader.errors import LoaderError
from loader.fetch.episodes import CameraStream
from loader.observe.metrics import LoaderMetrics
from loader.storage.tiers import Tiers
from loader.windows.episodes import WindowEpisode, WindowEpisodes
from loader.windows.index import WindowIndex
from loader.windows.keys import COUNTERS, SpecKeys
from loader.windows.steps import Steps

Missing = Literal["error", "pad"]
Sample: TypeAlias = dict[str, NDArray[Any] | str | list[str]]

PAD_SUFFIX: Final = "_is_pad"
_NOW: Final = np.zeros(1, np.int64)


@dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """What samples of each episode hold.

    Attributes:
        keys: per spec of the index.
        deltas: per episode's spec and rate: key -> int64 [n] steps relative to the sample's own.
        image_size: (height, width) of the pictures, None to keep theirs.
        missing: what to do where a step has no picture or an invalid value.
    """

    keys: Sequence[SpecKeys]
    deltas: Mapping[tuple[int, float | None], Mapping[str, Steps]]
    image_size: tuple[int, int] | None
    missing: Missing


class WindowReader:
    """Reads samples of an index; threads may share it, one reads at a time.

    Args:
        tiers: of the lake, pinned to the index's versions.
        index: the samples.
        spec: what they hold.
        cache_bytes: for signals and frame indexes of episodes read before.
        kept: keeps the frames of whole runs, which are then decoded together; None keeps nothing.
        metrics: where to count.
    """

    def __init__(
        self,
        tiers: Tiers,
        index: WindowIndex,
        spec: WindowSpec,
        *,
        cache_bytes: int,
        kept: KeptFrames | None = None,
        metrics: LoaderMetrics,
    ) -> None:
        self._tiers = tiers
        self._kept = kept
        self._index = index
        self._spec = spec
        self._metrics = metrics
        self._episodes = WindowEpisodes(
            tiers, index, spec.keys, limit_bytes=cache_bytes, metrics=metrics
        )
        self._decoder = FrameDecoder()
        self._converter = PixelConverter(spec.image_size)
        self._lock = threading.Lock()

    def read(self, samples: Sequence[int]) -> list[Sample]:
        """The samples of these numbers, in their order.

        A sample has, per key, the value of its own step, or where the key has deltas an array of
        the values at those steps and `<key>_is_pad`, bool [n]. Steps outside the episode show its
        first or last one and are marked. Pictures are uint8 [3, h, w], with several deltas
        [n, 3, h, w]. `task` is the text of the sample's own step.

        Raises:
            IndexError: there is no such sample.
            LoaderError: a step has no picture or no valid value, and `missing` is "error".
            LakeError: an episode cannot be read or decoded; names it.
        """
        with self._lock:
            places = [self._index.locate(sample) for sample in samples]
            with self._metrics.stage("fetch"):
                episodes = self._episodes.load([row for row, _ in places])
            pictures = _Pictures(self._spec.image_size)
            read = [self._sample(row, step, episodes[row], pictures) for row, step in places]
            self._show(pictures)
            return read

    def _sample(self, row: int, step: int, episode: WindowEpisode, pictures: "_Pictures") -> Sample:
        deltas = self._spec.deltas[int(self._index.spec[row]), self._index.fps(row)]
        now = _Shown.of(step, _NOW, episode.num_steps)
        sample: Sample = {}
        pads: Sample = {}
        for key, stream in episode.streams.items():
            shown = _Shown.of(step, deltas[key], episode.num_steps) if key in deltas else now
            frames = stream.index.step_to_frame[shown.steps]
            absent = frames < 0
            if absent.any():
                self._refuse(episode, key, "no picture", shown.steps[absent][0])
            out = pictures.want(stream, frames)
            sample[key] = out[0] if len(out) == 1 else out
            if key in deltas or self._spec.missing == "pad":
                pads[key + PAD_SUFFIX] = shown.outside | absent
        for key, values in episode.values.items():
            shown = _Shown.of(step, deltas[key], episode.num_steps) if key in deltas else now
            taken = values[shown.steps]
            pad = shown.outside
            if key in episode.invalid:
                invalid = episode.invalid[key][shown.steps]
                if invalid.any():
                    self._refuse(episode, key, "no valid value", shown.steps[invalid][0])
                    taken[invalid] = "" if taken.dtype.kind == "O" else 0
                pad = pad | invalid
            sample[key] = _plain(taken, alone=key not in deltas)
            if key in deltas or (self._spec.missing == "pad" and key not in COUNTERS):
                pads[key + PAD_SUFFIX] = pad.copy()
        return {**sample, **pads, "task": episode.task(step)}

    def _refuse(self, episode: WindowEpisode, key: str, what: str, step: int) -> None:
        if self._spec.missing == "error":
            raise LoaderError(
                f"episode {episode.episode_id}, step {step}: {what} of {key}; choose other"
                " episodes, leave the key out (keys=), or take zeros marked in"
                f" {key}{PAD_SUFFIX} (missing='pad')"
            )

    def _show(self, pictures: "_Pictures") -> None:
        """Read and decode what was asked for, each frame once, into the samples."""
        with self._metrics.stage("decode"):
            reused = sum(self._reuse(stream, pictures) for stream in pictures.wanted)
        with self._metrics.stage("plan"):
            runs = [
                (stream, run)
                for stream, places in pictures.wanted.items()
                for run in stream.runs.runs(self._to_decode(stream, places))
            ]
            ranges = [_byte_range(stream, run) for stream, run in runs]
        with self._metrics.stage("fetch"):
            parts = self._tiers.ranges(ranges)
        self._metrics.add(
            requests=bool(ranges),
            bytes_read=sum(part.length for part in ranges),
            wanted_frames=pictures.count,
            reused_frames=reused,
            decoded_frames=sum(run.stop_packet - run.first_packet for _, run in runs),
        )
        with self._metrics.stage("decode"):
            for (stream, run), part, data in zip(runs, ranges, parts, strict=True):
                try:
                    self._decode(stream, run, part, data, pictures.wanted[stream])
                except (CorruptDataError, VideoError) as error:
                    raise type(error)(f"{_where(stream, run)}: {error}") from error

    def _decode(
        self,
        stream: CameraStream,
        run: DecodeRun,
        part: ByteRange,
        data: bytes,
        places: Mapping[int, list[NDArray[np.uint8]]],
    ) -> None:
        try:
            frames = self._decoder.decode(stream.index, run, data)
        except CorruptDataError:  # on the way, or in a cache: what the lake holds decides
            (data,) = self._tiers.ranges([part], past_caches=True)
            frames = self._decoder.decode(stream.index, run, data)
        kept = {}
        for ordinal, frame in frames:
            if ordinal in places:
                self._put(frame, places[ordinal])
            if self._kept is not None:
                kept[ordinal] = frame
        if self._kept is not None:
            self._kept.keep(stream, kept)

    def _reuse(self, stream: CameraStream, pictures: "_Pictures") -> int:
        """Show what is kept, which is then no longer wanted; returns how many frames."""
        if self._kept is None:
            return 0
        places = pictures.wanted[stream]
        found = self._kept.take(stream, places)
        for ordinal, frame in found.items():
            self._put(frame, places.pop(ordinal))
        return len(found)

    def _to_decode(self, stream: CameraStream, wanted: Iterable[int]) -> list[int]:
        return list(wanted if self._kept is None else self._kept.whole_runs(stream, wanted))

    def _put(self, frame: VideoFrame, places: Sequence[NDArray[np.uint8]]) -> None:
        first, *others = places
        self._converter.rgb(frame, first)
        for other in others:
            other[...] = first


class _Shown(NamedTuple):
    """The steps [n] that a key shows, and which of them stand for one outside the episode."""

    steps: Steps
    outside: NDArray[np.bool_]

    @classmethod
    def of(cls, step: int, deltas: Steps, num_steps: int) -> "_Shown":
        wanted = step + deltas
        inside = np.minimum(np.maximum(wanted, 0), num_steps - 1)
        return cls(inside, inside != wanted)


def _plain(taken: NDArray[Any], *, alone: bool) -> NDArray[Any] | str | list[str]:
    """Values [n, *shape] as a sample has them: those of its own step alone without their axis."""
    if taken.dtype.kind == "O":
        return str(taken[0]) if alone else taken.tolist()
    return taken.reshape(taken.shape[1:]) if alone else taken


class _Pictures:
    """Where the frames of a batch go, by camera."""

    def __init__(self, image_size: tuple[int, int] | None) -> None:
        self._size = image_size
        self.wanted: dict[CameraStream, dict[int, list[NDArray[np.uint8]]]] = {}
        self.count = 0

    def want(self, stream: CameraStream, frames: NDArray[np.int32]) -> NDArray[np.uint8]:
        """uint8 [n, 3, h, w], to be filled when the frames are decoded; 0 where there is none."""
        size = self._size or (stream.index.height, stream.index.width)
        out = np.zeros((len(frames), 3, *size), np.uint8)
        places = self.wanted.setdefault(stream, {})
        for place, frame in enumerate(frames.tolist()):
            if frame >= 0:
                places.setdefault(frame, []).append(out[place])
                self.count += 1
        return out


def _where(stream: CameraStream, run: DecodeRun) -> str:
    """Names episode, camera and the first step that shows a frame of the run."""
    steps = np.flatnonzero(np.isin(stream.index.step_to_frame, run.frames))
    return f"{stream.label}, step {steps[0]}"


def _byte_range(stream: CameraStream, run: DecodeRun) -> ByteRange:
    offsets = stream.packet_offsets
    first, stop = int(offsets[run.first_packet]), int(offsets[run.stop_packet])
    return ByteRange(stream.address, stream.base_offset + first, stop - first)
