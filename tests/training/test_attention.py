import numpy as np
import pytest
import torch

from training.attention.segments import Segments
from training.attention.varlen import attention_backend, varlen_attention


def segments(
    lengths_q: list[int], lengths_k: list[int], *, causal: bool = False, empty: int = 2
) -> Segments:
    """Segments of the given lengths, then empty ones."""

    def cu(lengths: list[int]) -> torch.Tensor:
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return torch.from_numpy(np.append(ends, [ends[-1]] * empty).astype(np.int32))

    return Segments(
        cu_seqlens_q=cu(lengths_q),
        cu_seqlens_k=cu(lengths_k),
        max_seqlen_q=max(lengths_q, default=0),
        max_seqlen_k=max(lengths_k, default=0),
        causal=causal,
    )


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over all keys with a dense mask; rows that see nothing are 0."""
    scores = torch.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("hts,shd->thd", weights, v)


def dense_mask(lengths_q: list[int], lengths_k: list[int], *, causal: bool) -> torch.Tensor:
    mask = torch.zeros(sum(lengths_q), sum(lengths_k), dtype=torch.bool)
    row = column = 0
    for size_q, size_k in zip(lengths_q, lengths_k, strict=True):
        for i in range(size_q):
            seen = size_k - size_q + i + 1 if causal else size_k
            mask[row + i, column : column + max(seen, 0)] = True
        row, column = row + size_q, column + size_k
    return mask


CASES = {
    "unequal": ([3, 5, 1, 7], [3, 5, 1, 7]),
    "equal": ([4, 4, 4], [4, 4, 4]),
    "equal ones apart": ([2, 5, 2, 5, 2], [2, 5, 2, 5, 2]),
    "more keys than queries": ([2, 3, 2], [7, 4, 7]),
    "keys without queries": ([2, 0, 3], [4, 6, 3]),
    "trailing keys without queries": ([2, 3, 0], [4, 3, 9]),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_output_and_gradients_are_those_of_a_dense_mask(case: str, *, causal: bool) -> None:
    lengths_q, lengths_k = CASES[case]
    generator = torch.Generator().manual_seed(1)

    def leaf(rows: int) -> torch.Tensor:
        return torch.randn(rows, 2, 8, generator=generator, dtype=torch.float64).requires_grad_()

    q, k, v = leaf(sum(lengths_q)), leaf(sum(lengths_k)), leaf(sum(lengths_k))
    weights = torch.randn(sum(lengths_q), 2, 8, generator=generator, dtype=torch.float64)
    out = varlen_attention(q, k, v, segments(lengths_q, lengths_k, causal=causal))
    found = torch.autograd.grad((out * weights).sum(), (q, k, v))
    reference = dense(q, k, v, dense_mask(lengths_q, lengths_k, causal=causal))
    expected = torch.autograd.grad((reference * weights).sum(), (q, k, v))
    torch.testing.assert_close(out, reference, rtol=0, atol=1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_queries_without_keys_give_zeros() -> None:
    q, k = torch.randn(5, 2, 8), torch.randn(3, 2, 8)
    out = varlen_attention(q, k, k, segments([2, 3], [0, 3]))
    assert torch.equal(out[:2], torch.zeros(2, 2, 8))
    assert not torch.equal(out[2:], torch.zeros(3, 2, 8))


def test_no_query_at_all_keeps_every_input_in_the_graph() -> None:
    q = torch.empty(0, 2, 8, requires_grad=True)
    k, v = (torch.randn(6, 2, 8, requires_grad=True) for _ in range(2))
    out = varlen_attention(q, k, v, segments([0, 0], [2, 4]))
    assert out.shape == (0, 2, 8)
    for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
        assert float(gradient.abs().sum()) == 0.0


def test_masked_keys_are_as_if_they_were_not_there() -> None:
    q, k, v = torch.randn(4, 2, 8), torch.randn(6, 2, 8), torch.randn(6, 2, 8)
    padded = segments([2, 2], [3, 3])
    seen = torch.tensor([True, True, False, True, True, False])
    masked = Segments(**{**vars(padded), "key_mask": seen})
    out = varlen_attention(q, k, v, masked)
    fewer = varlen_attention(q, k[seen], v[seen], segments([2, 2], [2, 2]))
    torch.testing.assert_close(out, fewer, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("cu_q", "cu_k", "message"),
    [
        (torch.tensor([0, 2]), torch.tensor([0, 2], dtype=torch.int32), "cu_seqlens_q"),
        (torch.tensor([0, 2], dtype=torch.int32), torch.zeros(2, 2, dtype=torch.int32), "_k"),
        (
            torch.tensor([0, 2], dtype=torch.int32),
            torch.tensor([0, 1, 2], dtype=torch.int32),
            "same number",
        ),
    ],
)
def test_malformed_segments_are_refused(
    cu_q: torch.Tensor, cu_k: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Segments(cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=2, max_seqlen_k=2)


def test_the_cpu_has_the_reference_backend() -> None:
    assert attention_backend(torch.device("cpu"), torch.bfloat16) == "sdpa_per_segment"
