"""webdataset: tar files read in sequence, samples shuffled in a buffer."""

import time
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

_begin = time.perf_counter()

import torch  # noqa: E402
import webdataset  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from tools.peers.job import PeerJob, time_batches  # noqa: E402
from tools.peers.raw_samples import episode_windows, step_window  # noqa: E402
from tools.peers.window_stream import SHUFFLE_BUFFER, Sample, samples_of  # noqa: E402

_IMPORT_S = time.perf_counter() - _begin


def run(raw: dict[str, Any]) -> dict[str, Any]:
    """Run a job; its dataset is a folder of `write_streams` in either form."""
    torch.set_num_threads(1)
    job = PeerJob(**raw)
    begin = time.perf_counter()
    shards = [str(path) for path in sorted(Path(job.dataset).glob("*.tar"))]
    dataset: Any = webdataset.WebDataset(shards, shardshuffle=len(shards), seed=job.seed)
    dataset = dataset.compose(partial(_windows, chunk=job.chunk))
    dataset = dataset.shuffle(SHUFFLE_BUFFER, initial=SHUFFLE_BUFFER)
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
        library=f"webdataset {metadata.version('webdataset')}",
        import_s=_IMPORT_S,
        open_s=open_s,
    ).to_message()


def _windows(raw_samples: Iterator[dict[str, Any]], chunk: int) -> Iterator[Sample]:
    for raw in raw_samples:
        if any(name.endswith(".mp4") for name in raw):
            yield from episode_windows(raw, chunk)
        else:
            yield step_window(raw)
