"""Mosaic streaming: MDS shards, samples in the shuffled order of its own sampler."""

import time
from collections.abc import Iterator
from importlib import metadata
from typing import Any

_begin = time.perf_counter()

import torch  # noqa: E402
from streaming import StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from tools.peers.job import PeerJob, time_batches  # noqa: E402
from tools.peers.raw_samples import episode_windows, step_window  # noqa: E402
from tools.peers.window_stream import SHUFFLE_BUFFER, Sample, samples_of, shuffled  # noqa: E402

_IMPORT_S = time.perf_counter() - _begin


class _Steps(StreamingDataset):  # type: ignore[misc]  # absent where this is checked
    """Samples that are windows, decoded."""

    def __getitem__(self, at: int) -> Sample:
        return step_window(super().__getitem__(at))


class _Windows(IterableDataset):  # type: ignore[type-arg]
    """Windows out of samples that are episodes."""

    def __init__(self, episodes: Any, chunk: int, seed: int) -> None:  # noqa: ANN401
        self._episodes = episodes
        self._chunk = chunk
        self._seed = seed

    def __iter__(self) -> Iterator[Sample]:
        found = (one for raw in self._episodes for one in episode_windows(raw, self._chunk))
        return shuffled(found, SHUFFLE_BUFFER, self._seed)


def run(raw: dict[str, Any]) -> dict[str, Any]:
    """Run a job; its dataset is a folder of `write_streams` in either form."""
    torch.set_num_threads(1)
    job = PeerJob(**raw)
    clean_stale_shared_memory()
    begin = time.perf_counter()
    options = {
        "local": job.dataset,
        "shuffle": True,
        "shuffle_seed": job.seed,
        "batch_size": job.batch,
    }
    dataset: Any = _Steps(**options)
    if any(name.endswith(".mp4") for name in dataset.shards[0].column_names):
        dataset = _Windows(StreamingDataset(**options), job.chunk, job.seed)
    open_s = time.perf_counter() - begin
    return time_batches(
        job,
        lambda: iter(
            DataLoader(
                dataset,
                batch_size=job.batch,
                num_workers=job.workers,
                prefetch_factor=2 if job.workers else None,
            )
        ),
        samples=samples_of,
        library=f"mosaicml-streaming {metadata.version('mosaicml-streaming')}",
        import_s=_IMPORT_S,
        open_s=open_s,
    ).to_message()
