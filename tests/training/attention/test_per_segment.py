import pytest
import torch

from tests.training.attention.dense import HIDING, PLAIN, Case, assert_equals_dense
from training.attention.per_segment import SDPA, attend


@pytest.mark.parametrize("name", [*PLAIN, *HIDING])
def test_output_and_gradients_are_those_of_a_dense_mask(name: str) -> None:
    assert_equals_dense(attend, (PLAIN | HIDING)[name])


@pytest.mark.parametrize("name", PLAIN)
def test_in_single_precision_too(name: str) -> None:
    assert_equals_dense(attend, PLAIN[name], dtype=torch.float32, atol=1e-5)


def test_queries_without_keys_give_zeros() -> None:
    case = Case(lengths_q=(2, 3), lengths_k=(0, 3))
    q, k, v, _ = case.inputs()
    out = attend(q, k, v, case.segments())
    assert torch.equal(out[:2], torch.zeros(2, 4, 8))
    assert bool((out[2:] != 0).all())


@pytest.mark.parametrize("lengths_q", [(0, 0), (3, 0)])
def test_every_input_stays_in_the_graph_though_nothing_is_seen(lengths_q: tuple[int, int]) -> None:
    """DDP wants a gradient of every parameter on every rank; and not a NaN, whatever is there."""
    case = Case(lengths_q=lengths_q, lengths_k=(0, 4))
    q, k, v, _ = case.inputs()
    with torch.no_grad():
        k[0] = float("nan")
    out = attend(q, k, v, case.segments())
    assert out.shape == q.shape
    for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
        assert not bool(gradient.any())


def test_masked_keys_are_as_if_they_were_not_there() -> None:
    hiding = Case(lengths_q=(2, 2), lengths_k=(3, 3), hidden_keys=(2, 5))
    fewer = Case(lengths_q=(2, 2), lengths_k=(2, 2))
    q, k, v, _ = hiding.inputs()
    seen = hiding.segments().key_mask
    assert seen is not None
    torch.testing.assert_close(
        attend(q, k, v, hiding.segments()),
        attend(q, k[seen], v[seen], fewer.segments()),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_runs_everywhere(dtype: torch.dtype) -> None:
    assert SDPA.refusal(torch.device("cpu"), dtype) is None
    assert SDPA.refusal(torch.device("cuda"), dtype) is None
