"""The attention calls that a model makes, for a backend to be chosen by."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from training.attention.backend import Backend
from training.attention.per_segment import SDPA, attend
from training.attention.segments import Segments
from training.attention.varlen import use_backend


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionCall:
    """Calls of one kind.

    Attributes:
        q_shape: (T, H, D).
        k_shape: (S, Hk, D).
        dtype: of queries, keys and values.
        segments: the same object in all of them.
        times: how many there are.
    """

    q_shape: tuple[int, int, int]
    k_shape: tuple[int, int, int]
    dtype: torch.dtype
    segments: Segments
    times: int = 1

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.segments.cu_seqlens_q.device


def calls_of(run: Callable[[], object]) -> list[AttentionCall]:
    """What `run`, a forward pass of a model, asks of attention; it runs once, by SDPA.

    Uncompiled, and torch's random numbers are afterwards as they were before.
    """
    found: dict[tuple[object, ...], AttentionCall] = {}

    def note(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
        key = (id(segments), *q.shape, *k.shape, q.dtype)
        call = found.get(key)
        if call is None:
            tokens, heads, head_dim = q.shape
            call = AttentionCall(
                q_shape=(tokens, heads, head_dim),
                k_shape=(k.shape[0], k.shape[1], head_dim),
                dtype=q.dtype,
                segments=segments,
                times=0,
            )
        found[key] = replace(call, times=call.times + 1)
        return attend(q, k, v, segments)

    noting: Final = Backend(
        name="noting", unfit=SDPA.unfit, load=lambda: note, prepare=SDPA.prepare
    )
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with (
        use_backend(noting),
        torch.random.fork_rng(devices),
        torch.compiler.set_stance("force_eager"),
    ):
        run()
    return list(found.values())
