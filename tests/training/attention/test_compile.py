"""Compiled code is compiled once, not once per batch."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from tests.training.attention import libraries
from tests.training.attention.dense import Case, dense
from training.attention.calls import calls_of
from training.attention.segments import Segments
from training.attention.varlen import prepared, use_backend, varlen_attention

# Batches of one size, as those of a plan are on a GPU, with other segments in each.
BATCHES = [
    Case(lengths_q=lengths_q, lengths_k=lengths_k, causal=True, kv_heads=2)
    for lengths_q, lengths_k in (
        ((3, 4, 5, 0), (7, 8, 9, 0)),
        ((6, 1, 2, 3), (6, 6, 6, 6)),
        ((12, 0, 0, 0), (20, 4, 0, 0)),
        ((1, 1, 1, 9), (2, 2, 2, 18)),
    )
]


@pytest.fixture
def counter() -> Iterator[CompileCounter]:
    torch._dynamo.reset()
    yield CompileCounter()
    torch._dynamo.reset()


def segments_of(case: Case) -> Segments:
    """Longest lengths are constants of a plan."""
    found = case.segments()
    return prepared(
        Segments(
            cu_seqlens_q=found.cu_seqlens_q,
            cu_seqlens_k=found.cu_seqlens_k,
            max_seqlen_q=12,
            max_seqlen_k=24,
            causal=found.causal,
            total_q=12,
            total_k=24,
        )
    )


def layer(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    return varlen_attention(q * 2.0, k, v, segments) + 1.0


def outputs(compiled: Callable[..., Tensor]) -> None:
    for case in BATCHES:
        q, k, v, _ = (tensor.detach() for tensor in case.inputs())
        out = compiled(q, k, v, segments_of(case))
        torch.testing.assert_close(out, dense(q * 2.0, k, v, case.mask()) + 1.0, rtol=0, atol=1e-12)


def test_flex_is_one_with_the_layer_and_is_compiled_once(counter: CompileCounter) -> None:
    with use_backend("flex"), torch.no_grad():
        outputs(torch.compile(layer, backend=counter, fullgraph=True))
    assert counter.frame_count == 1


def test_sdpa_breaks_the_graph_in_two_and_they_are_compiled_once(counter: CompileCounter) -> None:
    """Groups of equal segments differ from batch to batch: code compiled for them would not do."""
    outputs(torch.compile(layer, backend=counter))
    assert counter.frame_count == 2


def test_flash_2_is_one_with_the_layer(
    counter: CompileCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels are registered with torch; here one that torch knows stands in."""

    @torch.library.custom_op("headrace_test::varlen", mutates_args=())
    def kernel(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> Tensor:
        return libraries.varlen(q, k, v, cu_q, cu_k, causal=True)

    @kernel.register_fake
    def _(q: Tensor, *_: Tensor) -> Tensor:
        return torch.empty_like(q)

    def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        out: Tensor = kernel(q, k, v, given["cu_seqlens_q"], given["cu_seqlens_k"])
        return out

    libraries.install(monkeypatch, "flash_attn", flash_attn_varlen_func=flash_attn_varlen_func)
    with use_backend("flash2"):
        outputs(torch.compile(layer, backend=counter, fullgraph=True))
    assert counter.frame_count == 1


def test_varlen_attn_of_torch_is_one_with_the_layer(counter: CompileCounter) -> None:
    """The real one, traced; a CPU has no kernel to run it with."""
    names: list[str] = []

    def trace(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., list[Tensor]]:
        names.extend(str(node.target) for node in graph.graph.nodes)
        counter(graph, inputs)
        return lambda *_: [torch.zeros(12, 4, 8)]

    compiled = torch.compile(layer, backend=trace, fullgraph=True)
    with use_backend("torch_varlen"):
        for case in BATCHES:
            q, k, v, _ = (tensor.detach() for tensor in case.inputs(torch.bfloat16))
            compiled(q, k, v, segments_of(case))
    assert "torch_attn._varlen_attn" in names
    assert counter.frame_count == 1


def test_another_backend_is_compiled_anew(counter: CompileCounter) -> None:
    compiled = torch.compile(layer, backend=counter)
    with torch.no_grad():
        outputs(compiled)
        with use_backend("flex"):
            outputs(compiled)
    assert counter.frame_count == 3


def test_looking_at_calls_compiles_nothing(counter: CompileCounter) -> None:
    compiled = torch.compile(layer, backend=counter)
    q, k, v, _ = BATCHES[0].inputs()
    (call,) = calls_of(partial(compiled, q, k, v, segments_of(BATCHES[0])))
    assert call.times == 1
    assert counter.frame_count == 0
