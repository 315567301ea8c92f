"""Attention written out plainly, with a dense mask, to compare every backend with."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from training.attention.segments import Segments

Attend = Callable[[Tensor, Tensor, Tensor, Segments], Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Lengths of segments; `heads` of queries share `kv_heads` of keys."""

    lengths_q: tuple[int, ...]
    lengths_k: tuple[int, ...]
    causal: bool = False
    hidden_keys: tuple[int, ...] | None = None
    heads: int = 4
    kv_heads: int = 4

    def segments(self, device: str = "cpu") -> Segments:
        """With two empty segments behind, as packed batches have."""
        key_mask = None
        if self.hidden_keys is not None:
            key_mask = torch.ones(sum(self.lengths_k), dtype=torch.bool, device=device)
            key_mask[list(self.hidden_keys)] = False
        cu_q = cu(self.lengths_q, device)
        return Segments(
            cu_seqlens_q=cu_q,
            cu_seqlens_k=cu_q if self.lengths_q == self.lengths_k else cu(self.lengths_k, device),
            max_seqlen_q=max(self.lengths_q),
            max_seqlen_k=max(self.lengths_k),
            causal=self.causal,
            key_mask=key_mask,
        )

    def inputs(
        self, dtype: torch.dtype = torch.float64, device: str = "cpu", head_dim: int = 8
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values that want gradients, and weights of the output."""
        generator = torch.Generator().manual_seed(1)

        def leaf(rows: int, heads: int) -> Tensor:
            drawn = torch.randn(rows, heads, head_dim, generator=generator, dtype=torch.float64)
            return drawn.to(device, dtype).requires_grad_()

        queries, keys = sum(self.lengths_q), sum(self.lengths_k)
        return (
            leaf(queries, self.heads),
            leaf(keys, self.kv_heads),
            leaf(keys, self.kv_heads),
            leaf(queries, self.heads).detach(),
        )

    def mask(self) -> Tensor:
        """[T, S] bool, which query sees which key."""
        mask = torch.zeros(sum(self.lengths_q), sum(self.lengths_k), dtype=torch.bool)
        row = column = 0
        for size_q, size_k in zip(self.lengths_q, self.lengths_k, strict=True):
            for i in range(size_q):
                seen = size_k - size_q + i + 1 if self.causal else size_k
                mask[row + i, column : column + max(seen, 0)] = True
            row, column = row + size_q, column + size_k
        mask[:, list(self.hidden_keys or ())] = False
        return mask


_LENGTHS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "unequal": ((3, 5, 1, 7), (3, 5, 1, 7)),
    "equal": ((4, 4, 4), (4, 4, 4)),
    "equal ones apart": ((2, 5, 2, 5, 2), (2, 5, 2, 5, 2)),
    "more keys than queries": ((2, 3, 2), (7, 4, 7)),
    "more queries than keys": ((5, 3, 5), (2, 3, 1)),
    "keys without queries": ((2, 0, 3), (4, 6, 3)),
    "trailing keys without queries": ((2, 3, 0), (4, 3, 9)),
    "queries without keys": ((2, 3, 4), (5, 0, 4)),
    "no query has keys": ((2, 3, 0), (0, 0, 4)),
}
PLAIN = {
    f"{name}, {'causal' if causal else 'full'}, {heads} heads on {kv_heads}": Case(
        lengths_q=lengths_q, lengths_k=lengths_k, causal=causal, heads=heads, kv_heads=kv_heads
    )
    for name, (lengths_q, lengths_k) in _LENGTHS.items()
    for causal in (False, True)
    for heads, kv_heads in ((4, 4), (4, 2))
}
HIDING = {
    f"{name}, hidden keys": replace(case, hidden_keys=(0, sum(case.lengths_k) - 1))
    for name, case in PLAIN.items()
}


def cu(lengths: tuple[int, ...], device: str = "cpu") -> Tensor:
    """Starts of segments of these lengths, then of two empty ones."""
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return torch.from_numpy(np.append(ends, [ends[-1]] * 2).astype(np.int32)).to(device)


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax over all keys with a dense mask; rows that see nothing are 0."""
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
    scores = torch.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).masked_fill(~mask, 0.0)
    return torch.einsum("hts,shd->thd", weights, v)


def run(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
) -> tuple[Tensor, ...]:
    """Output, and gradients of queries, keys and values."""
    q, k, v, weights = inputs
    out = attend(q, k, v)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), weights)


def assert_equals_dense(
    attend: Attend, case: Case, *, dtype: torch.dtype = torch.float64, atol: float = 1e-12
) -> None:
    """Output and gradients of a backend on the CPU are those of the dense mask."""
    inputs = case.inputs(dtype)
    segments = case.segments()
    found = run(lambda q, k, v: attend(q, k, v, segments), inputs)
    expected = run(lambda q, k, v: dense(q, k, v, case.mask()), case.inputs())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.to(dtype), rtol=0, atol=atol)


def assert_equals_dense_on_gpu(
    attend: Attend, case: Case, *, dtype: torch.dtype, head_dim: int = 64
) -> None:
    """The same on a GPU, within twenty roundings of the inputs' dtype."""
    inputs = case.inputs(dtype, "cuda", head_dim)
    segments = case.segments("cuda")
    found = run(lambda q, k, v: attend(q, k, v, segments), inputs)
    mask = case.mask().cuda()
    exact = tuple(x.detach().double().requires_grad_(x.requires_grad) for x in inputs)
    q, k, v, weights = exact
    expected = run(lambda q, k, v: dense(q, k, v, mask), (q, k, v, weights))
    for one, other in zip(found, expected, strict=True):
        scale = max(float(other.abs().max()), 1.0)
        torch.testing.assert_close(
            one.double(), other, rtol=0, atol=20 * torch.finfo(dtype).eps * scale
        )
