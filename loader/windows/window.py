"""Window: single samples with deltas in time, for trainers that were written for LeRobotDataset."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from catalog.selection import Selection
from lake.store import Lake
from loader.errors import LoaderError
from loader.observe.metrics import LoaderMetrics
from loader.storage.settings import StorageSettings
from loader.windows.keys import Names, picture_sizes
from loader.windows.meta import Stats, WindowMeta
from loader.windows.padded_keys import PaddedKey, padded_keys
from loader.windows.reader import Missing, Sample
from loader.windows.samples import FRAME_CACHE_BYTES, WindowSamples, require_one_of

try:
    import torch
    from torch.utils.data import Dataset
except ModuleNotFoundError as error:
    raise LoaderError(
        "samples of tensors need torch, which is not installed: pip install 'headrace[torch]', or"
        " take arrays: loader.windows.samples.WindowSamples"
    ) from error

ImageDtype = Literal["float32", "uint8"]
Item = dict[str, Any]
Transform = Callable[[torch.Tensor], torch.Tensor]


class Window(Dataset[Item]):
    """Every step of the chosen episodes as a sample, with the steps around it that a policy wants.

    Keys, dtypes, values and frames are those of LeRobotDataset on what was recorded by LeRobot:
    `observation.state`, `observation.images.top`, `action`, ..., `timestamp`, `frame_index`,
    `episode_index`, `index`, `task_index`, the text `task`, and for every key with deltas
    `<key>_is_pad`. Floating point values come as float32, whole numbers as int64. Samples follow
    the ids of the episodes, then their steps.

    A delta is a whole number of steps; there is no tolerance. Steps before an episode's begin or
    past its end repeat its first or last one and are marked in `<key>_is_pad`, as those trainers
    expect: mask them in the loss. (Packed batches do not pad.)

    A batch is fetched together (torch calls `__getitems__`): one read for all of it, and each
    group of pictures is decoded once for all samples that show it.

    It may be sent to other processes, and each opens the lake by itself. A fork of this process
    cannot read (Lance's threads are not in it) and says so: a DataLoader with workers needs
    `multiprocessing_context="forkserver"` or `"spawn"`.

    Args:
        lake: a lake, or its URI.
        delta_timestamps: key -> seconds relative to a sample's step, `[i / fps for i in ...]`.
        delta_steps: the same in steps, for other keys.
        episodes: a condition over the catalog's `episodes` such as `"success and num_steps > 30"`,
            episode ids, a selection or its name, or None for all.
        keys: features and cameras that samples have, None for all but depth cameras. A key that an
            episode lacks is absent from its samples: see `loader.windows.collate.collate_padded`.
        names: call them as the source does (`observation.images.top`) or as the lake (`top`).
        image_size: (height, width) to which pictures are scaled, None to keep theirs.
        image_dtype: `float32` in [0, 1], or `uint8`, a quarter of the bytes.
        image_transforms: applied to the pictures of each camera, [3, h, w], or [n, 3, h, w] where
            the camera has n > 1 deltas.
        missing: where a step has no picture or an invalid value: `error` refuses such episodes at
            once; `pad` gives zeros marked in `<key>_is_pad`, which all but the counters then have.
        cache_bytes: what each process keeps of the signals and frame indexes that it read.
        run_steps: decode this many steps in a row together and keep their frames, for samples that
            come in the order of a `BlockShuffle`; a multiple of the distance of key frames. None
            decodes what a batch shows and keeps nothing.
        frame_cache_bytes: what each process keeps of decoded frames, with `run_steps`.
        storage: time-outs, request budget and the node's cache.

    Attributes:
        image_transforms: may be set anew.

    Raises:
        LoaderError: an argument does not fit the lake; says what would.
        PackingError, CatalogError: `episodes` is neither a selection nor a condition.
        LakeError: the lake cannot be opened.
    """

    def __init__(
        self,
        lake: Lake | str | Path,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        *,
        delta_steps: Mapping[str, Sequence[int]] | None = None,
        episodes: Selection | Sequence[str] | str | None = None,
        keys: Sequence[str] | None = None,
        names: Names = "source",
        image_size: tuple[int, int] | None = None,
        image_dtype: ImageDtype = "float32",
        image_transforms: Transform | None = None,
        missing: Missing = "error",
        cache_bytes: int = 256 << 20,
        run_steps: int | None = None,
        frame_cache_bytes: int = FRAME_CACHE_BYTES,
        storage: StorageSettings | None = None,
    ) -> None:
        require_one_of("image_dtype", image_dtype, ("float32", "uint8"))
        self._samples = WindowSamples(
            lake,
            delta_timestamps,
            delta_steps=delta_steps,
            episodes=episodes,
            keys=keys,
            names=names,
            image_size=image_size,
            missing=missing,
            cache_bytes=cache_bytes,
            run_steps=run_steps,
            frame_cache_bytes=frame_cache_bytes,
            storage=storage,
        )
        self._cameras = frozenset(key for spec in self._samples.spec.keys for key in spec.cameras)
        self._image_dtype = image_dtype
        self.image_transforms = image_transforms

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, sample: int) -> Item: ...

    @overload
    def __getitem__(self, sample: slice) -> list[Item]: ...

    def __getitem__(self, sample: int | slice) -> Item | list[Item]:
        """One sample, negative numbers from the end; or those of a slice.

        Raises:
            IndexError: there is no such sample.
            LakeError: the episode cannot be read or decoded; names it and the camera.
            LoaderError: see `WindowReader.read`; or this process is a fork.
        """
        if isinstance(sample, slice):
            return self.__getitems__(range(*sample.indices(len(self))))
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[Item]:
        """Many samples, read and decoded together; torch's DataLoader fetches batches by it."""
        return [self._item(sample) for sample in self._samples.read(samples)]

    @property
    def num_frames(self) -> int:
        """Number of samples."""
        return len(self._samples)

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return self._samples.index.num_episodes

    @property
    def fps(self) -> float:
        """Steps per second of the episodes; a whole rate as an int.

        Raises:
            LoaderError: the episodes have several rates, or one has none.
        """
        rates = self._samples.index.rates
        if len(rates) != 1 or rates[0] is None:
            named = ", ".join("none" if rate is None else f"{rate:g}" for rate in rates)
            raise LoaderError(f"the episodes have no one rate: {named} steps/s; choose by `fps`")
        return int(rates[0]) if rates[0].is_integer() else rates[0]

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """See `WindowMeta.features`."""
        return self.meta.features

    @property
    def meta(self) -> WindowMeta:
        """Features, cameras, tasks and episodes."""
        return self._samples.meta

    @property
    def stats(self) -> Stats:
        """Statistics of the features, see `loader.windows.meta.window_stats`."""
        return self._samples.stats

    @property
    def metrics(self) -> LoaderMetrics:
        """What this process read and decoded."""
        return self._samples.metrics

    @property
    def run_steps(self) -> int | None:
        """Steps that are decoded together, as given."""
        return self._samples.run_steps

    @property
    def run_bytes(self) -> int:
        """Bytes of the decoded frames of a run, of all cameras at their largest (YUV 4:2:0)."""
        index, keys = self._samples.index, self._samples.spec.keys
        pixels = 0
        for camera in self.meta.camera_keys:
            sizes = picture_sizes(index, keys, camera)
            pixels += max(height * width for height, width in sizes)
        return (self.run_steps or 0) * pixels * 3 // 2

    @property
    def frame_cache_bytes(self) -> int:
        """What each process keeps of decoded frames, as given."""
        return self._samples.frame_cache_bytes

    def padded_keys(self, *, dims: Mapping[str, int] | None = None) -> dict[str, PaddedKey]:
        """What `loader.windows.collate.collate_padded` needs to give batches of one form.

        Args:
            dims: key -> elements to which its vectors are padded (`{"action": 32}`); where not
                given, the largest of the episodes.

        Raises:
            LoaderError: samples of these episodes have no common form; says why.
        """
        index, spec = self._samples.index, self._samples.spec
        return padded_keys(index, spec, image_dtype=self._image_dtype, dims=dims)

    def locate(self, sample: int) -> tuple[str, int]:
        """(episode id, step) of a sample."""
        row, step = self._samples.index.locate(sample)
        return self._samples.index.episode_id(row), step

    def close(self) -> None:
        """End what this process opened; a sample asked for later opens it again."""
        self._samples.close()

    def _item(self, sample: Sample) -> Item:
        item: Item = {}
        for key, value in sample.items():
            if not isinstance(value, np.ndarray):
                item[key] = value
                continue
            tensor = torch.from_numpy(value)
            if key in self._cameras:
                tensor = self._picture(tensor)
            item[key] = tensor
        return item

    def _picture(self, pixels: torch.Tensor) -> torch.Tensor:
        if self._image_dtype == "float32":
            pixels = pixels.to(torch.float32) / 255
        return pixels if self.image_transforms is None else self.image_transforms(pixels)
