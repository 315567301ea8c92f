"""FlexAttention has no backward pass on a CPU: the outputs are compared here, and the mask.

Uncompiled, since to generate code takes a CPU several seconds; what is generated is run in
`test_on_gpu.py`.
"""

import inspect
from functools import partial

import pytest
import torch
from torch.nn.attention import flex_attention as flex_attention_module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.training.attention.dense import HIDING, PLAIN, Case, dense
from training.attention.flex import FLEX, attend_by_flex, call_flex, compiled_flex


@pytest.fixture
def flex(monkeypatch: pytest.MonkeyPatch) -> partial[torch.Tensor]:
    monkeypatch.setattr(flex_attention_module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    return partial(call_flex, lambda **_: attend_by_flex)


@pytest.mark.parametrize("name", [*PLAIN, *HIDING])
def test_output_is_that_of_a_dense_mask(name: str, flex: partial[torch.Tensor]) -> None:
    case = (PLAIN | HIDING)[name]
    q, k, v, _ = case.inputs()
    with torch.no_grad():
        found = flex(q.detach(), k.detach(), v.detach(), case.segments())
    torch.testing.assert_close(found, dense(q, k, v, case.mask()).detach(), rtol=0, atol=1e-12)


LONG = Case(lengths_q=(130, 0, 7, 300, 256, 3), lengths_k=(200, 128, 0, 500, 1, 70))
BLOCKS = {
    "unlike lengths": LONG,
    "causal": Case(lengths_q=LONG.lengths_q, lengths_k=LONG.lengths_k, causal=True),
    "hidden keys": Case(lengths_q=(400, 384), lengths_k=(400, 384), hidden_keys=(0, 401, 402)),
    "one long segment": Case(lengths_q=(640,), lengths_k=(640,)),
    "many short segments": Case(lengths_q=(3,) * 200, lengths_k=(2,) * 200),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_no_block_that_is_seen_is_skipped_and_none_that_hides_is_taken_whole(name: str) -> None:
    """Against torch's own block mask, which evaluates every place."""
    case = BLOCKS[name]
    found = case.segments().block_mask
    mask = case.mask()
    rows, columns = mask.shape
    assert found.shape == (1, 1, rows, columns)
    assert found.mask_mod is not None
    exact = create_block_mask(found.mask_mod, None, None, rows, columns, device="cpu")
    filled = torch.nn.functional.pad(mask, (0, -columns % 128, 0, -rows % 128))
    blocks = filled.reshape(len(filled) // 128, 128, -1, 128)
    assert exact.full_kv_num_blocks is not None
    assert found.full_kv_num_blocks is not None
    assert found.full_kv_indices is not None
    taken = _dense(found.kv_num_blocks, found.kv_indices)
    whole = _dense(found.full_kv_num_blocks, found.full_kv_indices)
    assert bool((taken | whole)[blocks.any(dim=3).any(dim=1)].all())
    assert bool(blocks.all(dim=3).all(dim=1)[whole].all())
    assert not bool((taken & whole).any())
    assert int((taken | whole).sum()) <= 1.5 * int(exact.to_dense().sum())


def test_whole_blocks_are_found() -> None:
    found = BLOCKS["one long segment"].segments().block_mask
    assert found.full_kv_num_blocks is not None
    assert int(found.full_kv_num_blocks.sum()) == 25
    assert int(found.kv_num_blocks.sum()) == 0


def _dense(count: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    rows, columns = index.shape[-2:]
    out = torch.zeros(rows, columns, dtype=torch.bool)
    for row in range(rows):
        out[row, index[0, 0, row, : int(count[0, 0, row])].long()] = True
    return out


def test_a_cpu_is_refused_since_it_has_no_backward_pass() -> None:
    reason = FLEX.refusal(torch.device("cpu"), torch.float32)
    assert reason == "FlexAttention has no backward pass on a CPU"
    q, k, v, _ = PLAIN["equal, full, 4 heads on 4"].inputs()
    # When torch gets one, this fails and the refusal can go.
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None])


def test_each_kind_of_call_has_code_of_its_own() -> None:
    one = compiled_flex(heads=4, kv_heads=4, causal=False, hides=False)
    other = compiled_flex(heads=4, kv_heads=2, causal=False, hides=False)
    again = compiled_flex(heads=4, kv_heads=4, causal=False, hides=False)
    assert one is again
    assert inspect.unwrap(one).__code__ is not inspect.unwrap(other).__code__
