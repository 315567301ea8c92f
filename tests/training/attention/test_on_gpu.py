"""Every backend for real, where a GPU and its library are."""

import pytest
import torch

from tests.training.attention.dense import HIDING, PLAIN, Case, assert_equals_dense_on_gpu
from training.attention.calls import AttentionCall, calls_of
from training.attention.choose import choose_backend
from training.attention.varlen import BACKENDS, use_backend, varlen_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
LONG = Case(
    lengths_q=(130, 0, 7, 300, 256, 3), lengths_k=(200, 128, 9, 500, 257, 70), heads=8, kv_heads=2
)
CASES = PLAIN | {"long": LONG, "long, causal": Case(**{**vars(LONG), "causal": True})}


def usable(name: str, dtype: torch.dtype) -> None:
    reason = BACKENDS[name].refusal(torch.device("cuda"), dtype)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", BACKENDS)
def test_output_and_gradients_are_those_of_a_dense_mask(name: str, case: str) -> None:
    usable(name, torch.bfloat16)
    with use_backend(name):
        assert_equals_dense_on_gpu(varlen_attention, CASES[case], dtype=torch.bfloat16)


@pytest.mark.parametrize("case", HIDING)
@pytest.mark.parametrize("name", ["flex", "sdpa"])
def test_hidden_keys_are_hidden(name: str, case: str) -> None:
    usable(name, torch.bfloat16)
    with use_backend(name):
        assert_equals_dense_on_gpu(varlen_attention, HIDING[case], dtype=torch.bfloat16)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("name", BACKENDS)
def test_head_sizes_of_the_models(name: str, head_dim: int) -> None:
    usable(name, torch.bfloat16)
    with use_backend(name):
        assert_equals_dense_on_gpu(varlen_attention, LONG, dtype=torch.bfloat16, head_dim=head_dim)


def test_auto_measures_all_that_run_and_none_of_them_is_wrong() -> None:
    q, k, v, _ = LONG.inputs(torch.bfloat16, "cuda", 64)
    segments = LONG.segments("cuda")

    def calls() -> list[AttentionCall]:
        return calls_of(lambda: varlen_attention(q, k, v, segments))

    choice = choose_backend("auto", torch.device("cuda", 0), torch.bfloat16, calls)
    assert {*choice.measured_ms, *choice.refused} == set(BACKENDS)
    assert {"sdpa", "flex", "torch_varlen"} <= set(choice.measured_ms)
    assert choice.name == min(choice.measured_ms, key=lambda name: choice.measured_ms[name])
    assert not [reason for reason in choice.refused.values() if "is off by" in reason]
