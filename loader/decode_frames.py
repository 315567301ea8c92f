"""Packets to pictures, straight into the batch."""

from collections.abc import Sequence

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from lake.errors import CorruptDataError, VideoError
from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from loader.fetch import FetchedPack
from loader.images import FrameKey
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
        self._kept: dict[FrameKey, VideoFrame] = {}

    def decode(self, pack: FetchedPack, destinations: Sequence[NDArray[np.uint8]]) -> None:
        """Fill the pictures of a pack.

        Args:
            pack: with its packets.
            destinations: where the i-th picture of the pack's table goes.

        Raises:
            CorruptDataError: packets do not match their checksums; names span, episode, camera.
            VideoError: packets cannot be decoded; names the same.
        """
        images, pictures = pack.coming.images, pack.pictures
        wanted = images.rows_by_key
        for key in [key for key in wanted if key in self._kept]:
            self._show(self._kept[key], wanted[key], destinations)
        decoded = 0
        for fetched in pack.runs:
            stream = fetched.stream
            try:
                for ordinal, frame in self._decoder.decode(stream.index, fetched.run, fetched.data):
                    decoded += 1
                    key = FrameKey(stream, ordinal)
                    if (shown := wanted.get(key)) is not None:
                        self._show(frame, shown, destinations)
                    if key in pictures.keep:
                        self._kept[key] = frame
            except (CorruptDataError, VideoError) as error:
                spans = np.unique(images.span[images.stream == images.streams.index(stream)])
                raise type(error)(
                    f"span {pack.coming.row.span_id[spans[0]]}, {stream.label}: {error}"
                ) from error
        for key in pictures.drop:
            del self._kept[key]
        self._metrics.counts["wanted_frames"] += len(images)
        self._metrics.counts["decoded_frames"] += decoded
        self._metrics.counts["reused_frames"] += pictures.reused

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
