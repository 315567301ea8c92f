"""Packets to pictures, straight into the batch."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import CorruptDataError, VideoError
from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun
from loader.assembly.shape import BatchShape
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedPack, FetchedRun
from loader.observe.metrics import LoaderMetrics


class Frames(Protocol):
    """Where frames come from, as this module needs it: `PyavFrames`, `TorchcodecFrames`."""

    def decode(
        self, index: VideoIndex, run: DecodeRun, data: bytes | memoryview
    ) -> Iterator[tuple[int, Any]]:
        """The wanted frames of a run of verified packets with their display ordinals."""
        ...

    def show(self, frame: Any, out: Any) -> None:  # noqa: ANN401  # its own kinds
        """Write a frame to its place in a batch."""
        ...

    def allocate(self, shapes: Sequence[tuple[int, ...]]) -> Sequence[Any] | None:
        """Memory for the buckets of a batch; None where it writes to the batch's own."""
        ...


class PyavFrames:
    """Frames by PyAV, in the memory of the batch.

    They stay as the decoder gave them (for YUV 4:2:0 half the bytes of RGB) until they are shown,
    so that no picture is copied on its way into a batch.
    """

    def __init__(self, shape: BatchShape) -> None:
        self._decoder = FrameDecoder()
        self._converter = PixelConverter(shape.image_size)
        self._rgb = shape.image_format == "rgb"

    def decode(
        self, index: VideoIndex, run: DecodeRun, data: bytes | memoryview
    ) -> Iterator[tuple[int, VideoFrame]]:
        """See `FrameDecoder.decode`."""
        return self._decoder.decode(index, run, data, verified=True)

    def show(self, frame: VideoFrame, out: NDArray[np.uint8]) -> None:
        """Convert and scale a frame into the batch."""
        if self._rgb:
            self._converter.rgb(frame, out)
        else:
            self._converter.yuv420p(frame, out.reshape(-1))

    def allocate(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """None: pictures go into the batch's own memory."""


class PictureDecoder:
    """Decodes packs one after the other; keeps the frames that `Reuse` told to keep.

    Several threads share the cameras of a pack, and what is kept: Python's lock is free while
    FFmpeg decodes and converts, about 70 % of the time. Each camera is one thread's at a time.

    Args:
        shape: of the batches.
        metrics: where frames are counted.
        frames: where they come from, in one thread; PyAV where not given.
        threads: that decode by PyAV, the caller's among them.
    """

    def __init__(
        self,
        shape: BatchShape,
        metrics: LoaderMetrics,
        frames: Frames | None = None,
        *,
        threads: int = 1,
    ) -> None:
        self._frames: list[Frames] = [frames] if frames else []
        self._frames += [PyavFrames(shape) for _ in range(threads - len(self._frames))]
        self._threads = ThreadPoolExecutor(threads, "headrace-decode")  # none before it is used
        self._metrics = metrics
        self._kept: dict[CameraStream, dict[int, Any]] = {}

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def allocate(self, shapes: Sequence[tuple[int, ...]]) -> Sequence[Any] | None:
        """Memory for the buckets of a batch, where it is not the batch's own."""
        return self._frames[0].allocate(shapes)

    def decode(self, pack: FetchedPack, destinations: Sequence[Any]) -> None:
        """Fill the pictures of a pack.

        Pictures of bad spans become 0.

        Args:
            pack: with its packets, verified.
            destinations: where the i-th picture of the pack's table goes.

        Raises:
            CorruptDataError: packets are too short or too long; names span, episode and camera.
            VideoError: packets cannot be decoded; names the same.
        """
        images, pictures = pack.images, pack.pictures
        runs: dict[CameraStream, list[FetchedRun]] = {stream: [] for stream in images.rows}
        for fetched in pack.runs:
            runs.setdefault(fetched.stream, []).append(fetched)
        work = iter(runs.items())  # each thread takes the next camera when it is done with one
        others = [
            self._threads.submit(self._decode_streams, frames, work, pack, destinations)
            for frames in self._frames[1:]
        ]
        try:
            decoded = self._decode_streams(self._frames[0], work, pack, destinations)
        finally:
            wait(others)  # they write to the same batch
        decoded += sum(other.result() for other in others)
        if pack.bad:
            for row in np.flatnonzero(np.isin(images.span, list(pack.bad))).tolist():
                destinations[row][...] = 0
        for stream, gone in pictures.drop.items():
            kept = self._kept.get(stream, {})
            for ordinal in gone:
                kept.pop(ordinal, None)  # one that is lost was never there
            if not kept:
                self._kept.pop(stream, None)
        self._metrics.add(
            wanted_frames=len(images), decoded_frames=decoded, reused_frames=pictures.reused
        )

    def _decode_streams(
        self,
        frames: Frames,
        work: Iterator[tuple[CameraStream, list[FetchedRun]]],
        pack: FetchedPack,
        destinations: Sequence[Any],
    ) -> int:
        """Show kept frames, decode runs, show and keep theirs; returns how many were decoded."""
        decoded = 0
        for stream, runs in work:
            rows = pack.images.rows.get(stream, {})
            if kept := self._kept.get(stream):
                for ordinal in kept.keys() & rows.keys():
                    _show(frames, kept[ordinal], rows[ordinal], destinations)
            keep = frozenset(pack.pictures.keep.get(stream, ()))
            for fetched in runs:
                try:
                    for ordinal, frame in frames.decode(fetched.index, fetched.run, fetched.data):
                        decoded += 1
                        if ordinal in rows:
                            _show(frames, frame, rows[ordinal], destinations)
                        if ordinal in keep:
                            self._kept.setdefault(stream, {})[ordinal] = frame
                except (CorruptDataError, VideoError) as error:
                    raise type(error)(f"{pack.where(fetched)}: {error}") from error
        return decoded


def _show(
    frames: Frames,
    frame: Any,  # noqa: ANN401  # its own kinds
    rows: Sequence[int],
    destinations: Sequence[Any],
) -> None:
    first = destinations[rows[0]]
    frames.show(frame, first)
    for row in rows[1:]:
        destinations[row][...] = first
