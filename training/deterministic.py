"""Torch told to compute the same bits every time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:  # noqa: FBT001  (what the setting says)
    """Refuse operations that give other bits the second time, and choose no kernel by its speed.

    For cuBLAS a workspace of its own has to be set before the process first multiplies on a GPU
    (docs.pytorch.org/docs/stable/notes/randomness.html).
    """
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = before[2]
