"""Statistics of pictures, per channel, from histograms, which add up exactly.

Pictures are chosen and thinned out as LeRobot does: of n at least 100 (or all) and at most 10,000,
in between n^0.75; of each every k-th pixel, so that the longer side is 150 to 300.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.export.lerobot.schema import Camera
from ingest.export.lerobot.vector_stats import QUANTILES, Stats
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from lake.video_runs import decode_runs

_THIN: Final = 150
_LARGE: Final = 300
_LEAST, _MOST, _POWER = 100, 10_000, 0.75


class Histogram:
    """How often each pixel value occurs.

    Attributes:
        counts: int64 [C, 256], or [1, 65536] of depth.
        pictures: how many were looked at.
    """

    def __init__(self, camera: Camera) -> None:
        self._depth = camera.is_depth
        channels = 1 if camera.channels == 1 else 3
        self.counts = np.zeros((channels, 65_536 if self._depth else 256), np.int64)
        self.pictures = 0

    def add(self, other: "Histogram") -> None:
        """Count what another has counted, too."""
        self.counts += other.counts
        self.pictures += other.pictures

    def add_picture(self, picture: NDArray[Any]) -> None:
        """Count the pixels of uint8 or uint16 [C, H, W]."""
        factor = _thinning(*picture.shape[1:])
        values = self.counts.shape[1]
        for channel, pixels in enumerate(picture[:, ::factor, ::factor]):
            self.counts[channel] += np.bincount(pixels.ravel(), minlength=values)
        self.pictures += 1

    def stats(self) -> Stats:
        """min, max, mean, std, quantiles as [C][1][1], of colours in [0, 1]; count of pictures."""
        scale = 1.0 if self._depth else 255.0
        value = np.arange(self.counts.shape[1]) / scale
        total = self.counts.sum(axis=1)
        mean = (self.counts * value).sum(axis=1) / total
        variance = (self.counts * (value - mean[:, None]) ** 2).sum(axis=1) / total
        there = self.counts > 0
        last = self.counts.shape[1] - 1
        per_channel = {
            "min": value[there.argmax(axis=1)],
            "max": value[last - there[:, ::-1].argmax(axis=1)],
            "mean": mean,
            "std": np.sqrt(variance),
            **{name: self._quantile(value, at) for name, at in QUANTILES.items()},
        }
        shaped = {name: array.reshape(-1, 1, 1).tolist() for name, array in per_channel.items()}
        return {**shaped, "count": [self.pictures]}

    def _quantile(self, value: NDArray[np.float64], at: float) -> NDArray[np.float64]:
        """As `np.quantile` of all pixels would give it."""
        result = np.empty(len(self.counts))
        for channel, counts in enumerate(self.counts):
            below = np.cumsum(counts)
            place = at * (below[-1] - 1)
            low = value[np.searchsorted(below, int(place), side="right")]
            high = value[np.searchsorted(below, min(int(place) + 1, below[-1] - 1), side="right")]
            result[channel] = low + (high - low) * (place - int(place))
        return result


class PictureSampler:
    """Decodes some pictures of each episode; keeps decoders and scalers."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._converter = PixelConverter()

    def histogram(self, camera: Camera, video: CameraVideo) -> Histogram:
        """Pixel values of some pictures of an episode.

        Raises:
            VideoError: a picture cannot be decoded.
        """
        histogram = Histogram(camera)
        frames = video.index.step_to_frame[sampled_steps(len(video.index.step_to_frame))]
        offsets, payload = video.index.packet_offsets(), memoryview(video.payload)
        times = dict(zip(*np.unique(frames, return_counts=True), strict=True))
        for run in decode_runs(video.index, frames):
            data = payload[offsets[run.first_packet] : offsets[run.stop_packet]]
            for ordinal, frame in self._decoder.decode(video.index, run, data, verified=True):
                if camera.is_depth:
                    picture = frame.to_ndarray()[None]
                else:
                    picture = np.empty((3, *self._converter.output_size(frame)), np.uint8)
                    self._converter.rgb(frame, picture)
                for _ in range(times[ordinal]):
                    histogram.add_picture(picture[: len(histogram.counts)])
        if not histogram.pictures:
            raise VideoError("no picture was decoded")
        return histogram


def sampled_steps(num_steps: int) -> NDArray[np.int64]:
    """Steps whose pictures are looked at, evenly spread."""
    count = max(min(_LEAST, num_steps), min(int(num_steps**_POWER), _MOST))
    return np.round(np.linspace(0, num_steps - 1, count)).astype(np.int64)


def _thinning(height: int, width: int) -> int:
    if max(height, width) < _LARGE:
        return 1
    return max(height, width) // _THIN
