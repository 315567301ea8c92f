"""lerobot-lancedb's dataset in torch's DataLoader; `lerobot-lance-convert` writes what it reads."""

import os
import time
from importlib import metadata
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
_begin = time.perf_counter()

import torch  # noqa: E402
from lerobot_lancedb import LanceDBDataset, lance_mp_context  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from tools.peers.job import PeerJob, time_batches  # noqa: E402

_IMPORT_S = time.perf_counter() - _begin


def run(raw: dict[str, Any]) -> dict[str, Any]:
    """Run a job; its dataset is one that `lerobot-lance-convert` wrote."""
    torch.set_num_threads(1)
    job = PeerJob(**raw)
    begin = time.perf_counter()
    dataset = LanceDBDataset(
        root=job.dataset,
        delta_timestamps={"action": [step / job.fps for step in range(job.chunk)]},
        return_uint8=True,
    )
    open_s = time.perf_counter() - begin
    return time_batches(
        job,
        lambda: iter(
            DataLoader(
                dataset,
                batch_size=job.batch,
                sampler=job.indices(),
                num_workers=job.workers,
                prefetch_factor=2 if job.workers else None,
                multiprocessing_context=lance_mp_context() if job.workers else None,
            )
        ),
        samples=lambda batch: (batch["episode_index"].tolist(), batch["frame_index"].tolist()),
        library=f"lerobot-lancedb {metadata.version('lerobot-lancedb')}",
        import_s=_IMPORT_S,
        open_s=open_s,
    ).to_message()
