"""Packets to pictures, straight into the batch."""

from collections.abc import Sequence

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import CorruptDataError, VideoError
from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from loader.episodes import CameraStream
from loader.fetch import FetchedPack, FetchedRun
from loader.metrics import LoaderMetrics
from loader.shape import BatchShape


class PictureDecoder:
    """Decodes packs one after the other; keeps the frames that `Reuse` told to keep.

    Frames are kept as the decoder gave them (for YUV 4:2:0 half the bytes of RGB) and converted
    when they are shown, so that no picture is copied on its way into a batch.
    """

    def __init__(self, shape: BatchShape, metrics: LoaderMetrics) -> None:
        self._decoder = FrameDecoder()
        self._converter = PixelConverter(shape.image_size)
        self._rgb = shape.image_format == "rgb"
        self._metrics = metrics
        self._kept: dict[CameraStream, dict[int, VideoFrame]] = {}

    def decode(self, pack: FetchedPack, destinations: Sequence[NDArray[np.uint8]]) -> None:
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
        self._metrics.counts["wanted_frames"] += len(images)
        self._metrics.counts["decoded_frames"] += decoded
        self._metrics.counts["reused_frames"] += pictures.reused

    def _decode(
        self, fetched: FetchedRun, pack: FetchedPack, destinations: Sequence[NDArray[np.uint8]]
    ) -> int:
        """Decode one run, show and keep its frames; returns how many there were."""
        stream, decoded = fetched.stream, 0
        rows = pack.images.rows.get(stream, {})
        keep = frozenset(pack.pictures.keep.get(stream, ()))
        for ordinal, frame in self._decoder.decode(
            fetched.index, fetched.run, fetched.data, verified=True
        ):
            decoded += 1
            if ordinal in rows:
                self._show(frame, rows[ordinal], destinations)
            if ordinal in keep:
                self._kept.setdefault(stream, {})[ordinal] = frame
        return decoded

    def _show(
        self, frame: VideoFrame, rows: Sequence[int], destinations: Sequence[NDArray[np.uint8]]
    ) -> None:
        first = destinations[rows[0]]
        if self._rgb:
            self._converter.rgb(frame, first)
        else:
            self._converter.yuv420p(frame, first.reshape(-1))
        for row in rows[1:]:
            destinations[row][...] = first
