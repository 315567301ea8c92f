"""Which queries attend to which keys: segments of packed rows, and what pads hide."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from training.attention.block_mask import make_block_mask, places


@dataclass(frozen=True, kw_only=True, eq=False)
class Segments:
    """Which queries attend to which keys: segment n of the queries to segment n of the keys.

    Made once per batch and shared by all layers, since grouping the segments costs Python time,
    and masks cost memory traffic.

    Attributes:
        cu_seqlens_q: [N+1] int32, first query of each segment; the last element is T.
        cu_seqlens_k: [N+1] int32, first key of each segment; the last element is S.
        max_seqlen_q: no segment has more queries; an int, so that no device sync is needed.
        max_seqlen_k: no segment has more keys.
        causal: query i sees keys up to its own position counted from the end of the segment.
        key_mask: [S] bool, False for keys that no query may see; None where a batch holds real
            tokens only, as packed ones do. It is what padding needs.
        total_q: T, where the maker knows it; else it is read from the device when it is needed.
        total_k: S, likewise.
    """

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int
    causal: bool = False
    key_mask: Tensor | None = None
    total_q: int | None = None
    total_k: int | None = None

    def __post_init__(self) -> None:
        for name, cu_seqlens in (("q", self.cu_seqlens_q), ("k", self.cu_seqlens_k)):
            if cu_seqlens.dtype != torch.int32 or cu_seqlens.ndim != 1:
                raise ValueError(
                    f"cu_seqlens_{name} must be int32 [N+1], not {cu_seqlens.dtype}"
                    f" {tuple(cu_seqlens.shape)}"
                )
        if self.cu_seqlens_q.shape != self.cu_seqlens_k.shape:
            raise ValueError("queries and keys must have the same number of segments")

    @cached_property
    def totals(self) -> tuple[int, int]:
        """(T, S)."""
        return (
            int(self.cu_seqlens_q[-1]) if self.total_q is None else self.total_q,
            int(self.cu_seqlens_k[-1]) if self.total_k is None else self.total_k,
        )

    @cached_property
    def sees_keys(self) -> Tensor | None:
        """[T, 1, 1] bool, False for queries that see none; None where queries are keys too.

        Of `key_mask` it knows nothing.
        """
        if self.cu_seqlens_q is self.cu_seqlens_k:
            return None
        segment, back = places(self.cu_seqlens_q, self.totals[0])
        keys = self.cu_seqlens_k.diff()[segment]
        return (keys >= back if self.causal else keys > 0)[:, None, None]

    @cached_property
    def block_mask(self) -> BlockMask:
        """For FlexAttention; T and S must not be 0."""
        return make_block_mask(
            self.cu_seqlens_q,
            self.cu_seqlens_k,
            total_q=self.totals[0],
            total_k=self.totals[1],
            causal=self.causal,
            key_mask=self.key_mask,
        )

    @cached_property
    def groups(self) -> "SegmentGroups":
        """The non-empty segments, grouped by size (read on the host: per-segment SDPA only)."""
        return _group(self.cu_seqlens_q.tolist(), self.cu_seqlens_k.tolist())

    @cached_property
    def masks(self) -> tuple[Tensor | None, ...]:
        """For each group, bool that broadcasts to [segments, H, queries, keys]; None sees all."""
        key_mask = self.key_mask
        if key_mask is not None and self.groups.order_k is not None:
            key_mask = key_mask[self.groups.order_k.to(key_mask.device)]
        masks = []
        first = 0
        for count, size_q, size_k in self.groups.sizes:
            mask = _causal_mask(size_q, size_k, self.cu_seqlens_q.device) if self.causal else None
            stop = first + count * size_k
            if key_mask is not None:
                visible = key_mask[first:stop].reshape(count, 1, 1, size_k)
                mask = visible if mask is None else visible & mask
            masks.append(mask)
            first = stop
        return tuple(masks)


@dataclass(frozen=True, kw_only=True, eq=False)
class SegmentGroups:
    """Segments of equal size stand together, so that each group is one batched SDPA call.

    Attributes:
        sizes: (segments, queries, keys) of each group; segments without queries are left out.
        order_q: token order that brings the groups together, None where it is the given order.
        order_k: the same for the keys; None where the groups are the first keys in their order.
        restore_q: inverse of `order_q`.
    """

    sizes: tuple[tuple[int, int, int], ...]
    order_q: Tensor | None
    order_k: Tensor | None
    restore_q: Tensor | None


def _group(cu_q: Sequence[int], cu_k: Sequence[int]) -> SegmentGroups:
    members: dict[tuple[int, int], list[int]] = {}
    for n in range(len(cu_q) - 1):
        size_q, size_k = cu_q[n + 1] - cu_q[n], cu_k[n + 1] - cu_k[n]
        if size_q:
            members.setdefault((size_q, size_k), []).append(n)
    order = [n for group in members.values() for n in group]
    order_q = _token_order(cu_q, order)
    return SegmentGroups(
        sizes=tuple((len(group), *size) for size, group in members.items()),
        order_q=order_q,
        order_k=_token_order(cu_k, order),
        restore_q=None if order_q is None else torch.argsort(order_q),
    )


def _token_order(cu_seqlens: Sequence[int], segments: Sequence[int]) -> Tensor | None:
    if not segments:
        return None
    order = torch.cat([torch.arange(cu_seqlens[n], cu_seqlens[n + 1]) for n in segments])
    return None if torch.equal(order, torch.arange(len(order))) else order


def _causal_mask(size_q: int, size_k: int, device: torch.device) -> Tensor:
    """Bottom-right aligned, as in flash-attn: the last query sees every key."""
    return torch.ones(size_q, size_k, dtype=torch.bool, device=device).tril(size_k - size_q)
