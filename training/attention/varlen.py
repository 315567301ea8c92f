"""Attention over segments of a packed batch: one function for every backend.

A packed batch is one long row of tokens; `cu_seqlens` says where each span's tokens begin. The
block mask of a vision-language-action policy needs no dense mask: it is two calls, prefix to
prefix, and action to prefix + earlier actions.

Shape suffixes as in `training.attention.backend`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from training.attention.backend import Attend, Backend
from training.attention.flash import FLASH_2, FLASH_3, FLASH_4
from training.attention.flex import FLEX
from training.attention.per_segment import SDPA
from training.attention.segments import Segments
from training.attention.torch_varlen import TORCH_VARLEN
from training.attention.transformer_engine import TRANSFORMER_ENGINE
from training.errors import ConfigError

BACKENDS: Final[Mapping[str, Backend]] = {
    backend.name: backend
    for backend in (FLASH_4, FLASH_3, FLASH_2, TRANSFORMER_ENGINE, TORCH_VARLEN, FLEX, SDPA)
}

# Of the process, not of the thread or the context: autograd computes checkpointed layers again in
# threads of its own, where a context variable would have its default; and compiled code is guarded
# on a global.
_active: Backend = SDPA
_attend: Attend = SDPA.load()


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """Softmax attention inside each segment, nothing across segments.

    By the backend that `use_backend` has set, else by SDPA per segment, which runs everywhere.

    Args:
        q: [T, H, D] queries.
        k: [S, Hk, D] keys; Hk divides H, and query heads share those of keys in groups.
        v: [S, Hk, D] values.
        segments: which queries see which keys.

    Returns:
        [T, H, D], under autocast in its dtype. A query that sees no key gets zeros.

    Raises:
        ConfigError: the segments hide keys, and the backend cannot.
    """
    device = q.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        # Kernels of other libraries take no part in autocast.
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    return _attend(q, k, v, segments)


@contextmanager
def use_backend(backend: str | Backend) -> Iterator[None]:
    """Attend by one of `BACKENDS`, by name, or by a backend of your own, in the whole process.

    Raises:
        ConfigError: no backend has this name, or its library cannot be imported.
    """
    global _active, _attend
    found = named(backend) if isinstance(backend, str) else backend
    before = _active, _attend
    _active, _attend = found, found.load()
    try:
        yield
    finally:
        _active, _attend = before


def named(name: str) -> Backend:
    """The backend of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in BACKENDS:
        raise ConfigError(f"no attention backend called {name!r}; there are: {', '.join(BACKENDS)}")
    return BACKENDS[name]


def prepared(segments: Segments) -> Segments:
    """The segments, with what the backend reads of them made now, outside of compiled layers."""
    _active.prepare(segments)
    return segments
