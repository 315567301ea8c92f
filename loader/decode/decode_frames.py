"""Packets to pictures, straight into the batch."""

from collections.abc import Iterator, Sequence
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

    Args:
        shape: of the batches.
        metrics: where frames are counted.
        frames: where they come from; PyAV where not given.
    """

    def __init__(
        self, shape: BatchShape, metrics: LoaderMetrics, frames: Frames | None = None
    ) -> None:
        self._frames: Frames = frames or PyavFrames(shape)
        self._metrics = metrics
        self._kept: dict[CameraStream, dict[int, Any]] = {}

    def allocate(self, shapes: Sequence[tuple[int, ...]]) -> Sequence[Any] | None:
        """Memory for the buckets of a batch, where it is not the batch's own."""
        return self._frames.allocate(shapes)

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
        for stream, frames in images.rows.items():
            if kept := self._kept.get(stream):
                for ordinal in kept.keys() & frames.keys():
                    self._show(kept[ordinal], frames[ordinal], destinations)
        decoded = 0
        for fetched in pack.runs:
            try:
                decoded += self._decode(fetched, pack, destinations)
            except (CorruptDataError, VideoError) as error:
                raise type(error)(f"{pack.where(fetched)}: {error}") from error
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

    def _decode(self, fetched: FetchedRun, pack: FetchedPack, destinations: Sequence[Any]) -> int:
        """Decode one run, show and keep its frames; returns how many there were."""
        stream, decoded = fetched.stream, 0
        rows = pack.images.rows.get(stream, {})
        keep = frozenset(pack.pictures.keep.get(stream, ()))
        for ordinal, frame in self._frames.decode(fetched.index, fetched.run, fetched.data):
            decoded += 1
            if ordinal in rows:
                self._show(frame, rows[ordinal], destinations)
            if ordinal in keep:
                self._kept.setdefault(stream, {})[ordinal] = frame
        return decoded

    def _show(self, frame: object, rows: Sequence[int], destinations: Sequence[Any]) -> None:
        first = destinations[rows[0]]
        self._frames.show(frame, first)
        for row in rows[1:]:
            destinations[row][...] = first
