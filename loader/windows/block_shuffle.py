"""An order of samples that is random, and in which neighbours come while their frames are decoded.

Every episode is cut into runs of some steps. Runs are put in random order and each spreads its
samples at random over the stretch of as many samples as `open_runs` runs have, so that a batch
draws from about that many runs, wherever they were recorded, and each run is decoded once.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from torch.utils.data import Sampler

from loader.errors import LoaderError, LoaderStateError
from loader.windows.window import Window


class BlockShuffle(Sampler[list[int]]):
    """Batches of a `Window` that was opened with `run_steps`: every sample once per epoch.

    `DataLoader(window, batch_sampler=BlockShuffle(window, 32, lanes=4), num_workers=4,
    multiprocessing_context="forkserver")`. Each epoch has its own order, a function of seed and
    epoch (and of all sizes given here).

    Every iteration is a whole epoch, the one after the last that was begun, or that of `set_epoch`;
    only the first one after `load_state_dict` begins in the middle. So what a DataLoader has asked
    for ahead, when its iteration is left early, is not missing in the next one.

    Ranks have equally many samples; where they do not divide, the last one repeats the first of
    the epoch, as those of torch's `DistributedSampler` do.

    Args:
        window: with `run_steps`.
        batch_size: samples of a batch; the last one may be smaller.
        open_runs: runs that each lane draws from at a time. More is more random and takes more
            memory: see `frame_bytes`.
        lanes: the workers of the DataLoader: the batches of each have runs of their own.
        seed: of the orders.
        rank: of this process.
        world_size: number of ranks.

    Attributes:
        frame_bytes: what the frames of the open runs take in each worker, at the largest.

    Raises:
        LoaderError: an argument is no positive number, or the Window keeps fewer frames than the
            open runs have.
    """

    def __init__(
        self,
        window: Window,
        batch_size: int,
        *,
        open_runs: int = 64,
        lanes: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if window.run_steps is None:
            raise LoaderError("BlockShuffle needs Window(run_steps=...): the steps of a run")
        if min(batch_size, open_runs, lanes, world_size) < 1 or not 0 <= rank < world_size:
            raise LoaderError(
                f"BlockShuffle(batch_size={batch_size}, open_runs={open_runs}, lanes={lanes},"
                f" rank={rank}, world_size={world_size}): positive numbers, and a rank below"
                " world_size"
            )
        self._run_steps = window.run_steps
        self._starts, self._lengths = _runs(window)
        self.frame_bytes = window.run_bytes * open_runs
        if self.frame_bytes > window.frame_cache_bytes:
            raise LoaderError(
                f"{open_runs} open runs have {self.frame_bytes >> 20} MiB of frames, the Window"
                f" keeps {window.frame_cache_bytes >> 20}: lower open_runs, or raise"
                " frame_cache_bytes (of every worker)"
            )
        self._batch_size, self._open_runs, self._lanes = batch_size, open_runs, lanes
        self._seed, self._rank, self._world_size = seed, rank, world_size
        self._epoch, self._next_batch = 0, 0
        self._loaded = False  # the position is where to begin, not where the last iteration is

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return math.ceil(self._share() / self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        if self._next_batch and not self._loaded:
            self._epoch, self._next_batch = self._epoch + 1, 0
        self._loaded = False
        epoch, batches = self._epoch, self._batches()
        for number in range(self._next_batch, len(batches)):
            self._epoch, self._next_batch = epoch, number + 1
            yield batches[number].tolist()
        self._epoch, self._next_batch = epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch; keeps a position in it that was loaded."""
        if epoch != self._epoch or not self._loaded:
            self._epoch, self._next_batch = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """The position: behind the last batch that was asked for.

        A DataLoader with workers asks ahead: torchdata's `StatefulDataLoader` knows which batches
        were consumed; or set `next_batch` to the training steps done in the epoch.
        """
        return {"epoch": self._epoch, "next_batch": self._next_batch, "shape": self._shape()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken.

        Raises:
            LoaderStateError: the state is of other samples, or of another seed or size.
        """
        if list(state["shape"]) != self._shape():
            raise LoaderStateError(
                f"the saved order is that of {list(state['shape'])}, this one of {self._shape()}"
                " (samples, digest of the runs, run_steps, batch_size, open_runs, lanes, seed,"
                " world_size)"
            )
        self._epoch, self._next_batch = int(state["epoch"]), int(state["next_batch"])
        self._loaded = True

    def _shape(self) -> list[int]:
        runs = xxhash.xxh32_intdigest(np.stack([self._starts, self._lengths]).tobytes())
        sizes = [self._run_steps, self._batch_size, self._open_runs, self._lanes]
        return [int(self._lengths.sum()), runs, *sizes, self._seed, self._world_size]

    def _share(self) -> int:
        """Samples of a rank."""
        return math.ceil(int(self._lengths.sum()) / self._world_size)

    def _batches(self) -> list[NDArray[np.int64]]:
        """This rank's batches of the epoch."""
        rng = np.random.default_rng([self._seed, self._epoch])
        order = rng.permutation(len(self._starts))
        lengths = self._lengths[order]
        ends = np.cumsum(lengths)
        run = np.repeat(np.arange(len(order)), lengths)
        samples = np.arange(ends[-1]) + np.repeat(self._starts[order] - (ends - lengths), lengths)
        share = self._share()
        # Of one lane after the other: a run is cut only where a rank's or a lane's part ends.
        ours = np.arange(self._rank * share, (self._rank + 1) * share) % len(samples)
        at = run[ours] + self._open_runs * rng.random(len(samples))[ours]
        batches: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(self)
        first = 0
        for lane in range(self._lanes):
            numbers = range(lane, len(self), self._lanes)
            sizes = [min(self._batch_size, share - n * self._batch_size) for n in numbers]
            part = slice(first, first + sum(sizes))
            shuffled = samples[ours[part]][np.argsort(at[part], kind="stable")]
            cuts = np.split(shuffled, np.cumsum(sizes)[:-1]) if sizes else []
            for number, batch in zip(numbers, cuts, strict=True):
                batches[number] = batch
            first = part.stop
        return batches


def _runs(window: Window) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """int64 [R] and [R]: the first sample of every run, and its samples."""
    steps = window.run_steps or 1
    begin, end = (
        np.asarray(window.meta.episodes[name], np.int64)
        for name in ("dataset_from_index", "dataset_to_index")
    )
    runs = -(-(end - begin) // steps)
    nth = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    starts = np.repeat(begin, runs) + steps * nth
    return starts, np.minimum(starts + steps, np.repeat(end, runs)) - starts
