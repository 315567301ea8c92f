"""What a plan asks of storage, memory and decoder: the figures of the storage model."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over steps: its mean, 95th percentile and maximum."""

    mean: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """Of values [n], n > 0."""
        p95 = np.sort(values)[(len(values) - 1) * 95 // 100]
        return cls(mean=float(values.mean()), p95=float(p95), max=float(values.max()))


@dataclass(frozen=True, kw_only=True)
class StorageUse:
    """Of one rank's steps at one world size, as `packing.storage.model` replays the loader.

    Attributes:
        world_size: ranks.
        rank_steps: steps of a rank that were modelled; all of all ranks, or a sample.
        calls: to the lake's reader per step (the loader counts them as `requests`).
        requests: reads of the store per step, neighbouring ones merged up to the fetch block.
        read_bytes: of the store per step.
        video_bytes: of them packets (the loader counts them as `bytes_read`), mean per step.
        pictures: shown per step, mean.
        fresh_pictures: of them not in memory yet (the loader counts them as `decoded_frames`).
        decoded_frames: decoded per step for these, those before them in their group included.
        kept_frames, kept_bytes: the most decoded frames that a decode process of the rank keeps for
            coming packs.
        look_ahead_packs: packs that it knows beyond those being read.
    """

    world_size: int
    rank_steps: int
    calls: Spread
    requests: Spread
    read_bytes: Spread
    video_bytes: float
    pictures: float
    fresh_pictures: float
    decoded_frames: float
    kept_frames: int
    kept_bytes: int
    look_ahead_packs: int

    @property
    def requests_per_step(self) -> float:
        """Of all ranks together."""
        return self.requests.mean * self.world_size

    @property
    def bytes_per_step(self) -> float:
        """Of all ranks together."""
        return self.read_bytes.mean * self.world_size

    @property
    def decoded_over_shown(self) -> float:
        """Frames decoded for each picture shown; below 1 where windows share a frame."""
        return self.decoded_frames / self.pictures if self.pictures else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with the sums over ranks."""
        return {
            **asdict(self),
            "requests_per_step": self.requests_per_step,
            "bytes_per_step": self.bytes_per_step,
            "decoded_over_shown": self.decoded_over_shown,
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From what `dataclasses.asdict` made of it."""
        spreads = {name: Spread(**raw[name]) for name in ("calls", "requests", "read_bytes")}
        return cls(**{**raw, **spreads})
