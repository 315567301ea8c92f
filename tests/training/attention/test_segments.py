from dataclasses import replace

import pytest
import torch

from tests.training.attention.dense import PLAIN, Case
from training.attention.segments import Segments


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


@pytest.mark.parametrize("name", PLAIN)
def test_it_knows_the_queries_that_see_no_key(name: str) -> None:
    case = PLAIN[name]
    found = case.segments().sees_keys
    expected = case.mask().any(dim=1)
    if case.lengths_q == case.lengths_k:
        assert found is None
        assert bool(expected.all())
    else:
        assert found is not None
        assert torch.equal(found[:, 0, 0], expected)


def test_totals_are_read_where_the_maker_does_not_tell_them() -> None:
    segments = Case(lengths_q=(2, 3), lengths_k=(4, 4)).segments()
    assert segments.totals == (5, 8)
    assert replace(segments, total_q=6, total_k=9).totals == (6, 9)
