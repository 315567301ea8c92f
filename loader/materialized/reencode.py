"""Pictures of a pack, scaled as the loader scales them and encoded anew."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from lake.video_encode import encode_frames
from lake.video_runs import DecodeRun
from loader.assembly.shape import BatchShape
from loader.decode.decode_frames import PictureDecoder
from loader.errors import LoaderError
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedPack, FetchedRun
from loader.fetch.images import ImageTable
from loader.materialized.pack import PackContent
from loader.materialized.settings import MaterializedSettings
from loader.observe.metrics import LoaderMetrics

_FPS = 30  # packets need timestamps; nothing reads them


@dataclass(frozen=True, kw_only=True)
class Reencoded:
    """A pack with its new packets, and how far its pictures are from those that were encoded.

    Attributes:
        content: the pack.
        squared_error: sum of the squared differences of all values.
        pixel_values: number of values.
    """

    content: PackContent
    squared_error: int
    pixel_values: int


class PackEncoder:
    """Encodes packs one after the other, in the order in which a `Fetcher` gives them.

    All distinct pictures of one size become one stream with a key frame every 15 pictures. They
    stand camera by camera and by time, so that neighbours look alike, whatever the order in which
    the pack shows them; a picture that the pack shows twice is encoded once.
    """

    def __init__(
        self, settings: MaterializedSettings, shape: BatchShape, metrics: LoaderMetrics
    ) -> None:
        if settings.codec == "copy":
            raise LoaderError("codec='copy' encodes nothing")
        self._settings = settings
        self._codec = settings.codec
        self._decoder = PictureDecoder(shape, metrics)
        self._check = FrameDecoder()
        self._converter = PixelConverter()

    def encode(self, pack: FetchedPack) -> Reencoded:
        """Decode, scale and encode the pictures of a pack; what was encoded is decoded again.

        Raises:
            LakeError: packets are damaged or cannot be decoded; names span, episode and camera.
        """
        images = pack.images
        pictures = [np.empty((3, *self._size(images, row)), np.uint8) for row in range(len(images))]
        self._decoder.decode(pack, pictures)
        sizes = [picture.shape[1:] for picture in pictures]
        frame, stream = np.zeros(len(images), np.int32), np.zeros(len(images), np.int32)
        streams: list[CameraStream] = []
        runs: list[FetchedRun] = []
        error = values = 0
        for size in sorted(set(sizes)):
            distinct: dict[tuple[int, int], list[int]] = {}
            for row in np.lexsort((images.frame, images.stream)).tolist():
                if sizes[row] == size:
                    key = (int(images.stream[row]), int(images.frame[row]))
                    distinct.setdefault(key, []).append(row)
            originals = [pictures[rows[0]] for rows in distinct.values()]
            run = self._encoded(originals, pack.row.pack)
            for ordinal, rows in enumerate(distinct.values()):
                frame[rows], stream[rows] = ordinal, len(streams)
            streams.append(run.stream)
            runs.append(run)
            for original, decoded in zip(originals, self._decoded(run), strict=True):
                difference = original.astype(np.int32) - decoded
                error += int(np.square(difference).sum(dtype=np.int64))
                values += original.size
        table = ImageTable(
            span=images.span,
            step=images.step,
            camera=images.camera,
            frame=frame,
            nth=images.nth,
            stream=stream,
            streams=tuple(streams),
        )
        content = PackContent(images=table, signals=pack.signals, runs=tuple(runs))
        return Reencoded(content=content, squared_error=error, pixel_values=values)

    def _size(self, images: ImageTable, row: int) -> tuple[int, int]:
        index = images.streams[images.stream[row]].index
        return self._settings.image_size or (index.height, index.width)

    def _encoded(self, pictures: Sequence[NDArray[np.uint8]], pack: int) -> FetchedRun:
        quality = self._settings.quality or 0
        video = encode_frames(
            (picture.transpose(1, 2, 0) for picture in pictures),
            fps=_FPS,
            step_to_frame=np.empty(0, np.int32),
            codec=self._codec,
            crf=quality,
            qscale=quality,
        )
        height, width = pictures[0].shape[1:]
        stream = CameraStream(
            episode=-1,
            camera=-1,
            label=f"pictures of {width}x{height} in pack {pack}",
            address=pack,
            base_offset=0,
            index=video.index,
        )
        frames = np.arange(len(pictures), dtype=np.int32)
        run = DecodeRun(first_packet=0, stop_packet=len(pictures), frames=frames)
        return FetchedRun(stream=stream, index=video.index, run=run, data=video.payload)

    def _decoded(self, run: FetchedRun) -> Iterator[NDArray[np.uint8]]:
        for _, frame in self._check.decode(run.index, run.run, run.data):
            out = np.empty((3, frame.height, frame.width), np.uint8)
            self._converter.rgb(frame, out)
            yield out
