"""Stand-ins for libraries that need a GPU, with the parameters of the real functions.

Parameters are those of:
- FlashAttention 2, `flash_attn/flash_attn_interface.py`; 3, `hopper/flash_attn_interface.py`; and
  4, `flash_attn/cute/interface.py`: github.com/Dao-AILab/flash-attention at
  0251105a2fb19d2957484b7f023cd8c115286ced
- Transformer Engine, `transformer_engine/pytorch/attention/dot_product_attention/
  dot_product_attention.py`: github.com/NVIDIA/TransformerEngine at
  d0067d0da6cb01811b8072a7d304f0e00344ce2b
- torch 2.13, `torch/nn/attention/varlen.py`: read from the installed torch.

Each computes what its library documents, with a dense mask made from the arguments. For queries
that see no key they give NaN, as a kernel may that does not write there.
"""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.attention.dense import Case, dense

FLASH_2 = """
q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal
window_size softcap alibi_slopes deterministic return_attn_probs block_table"""
FLASH_3 = """
q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k seqused_q seqused_k
softmax_scale causal qv q_descale k_descale v_descale window_size attention_chunk softcap num_splits
pack_gqa deterministic sm_margin return_attn_probs"""
FLASH_4 = """
q k v qv cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_k seqused_q
seqused_k gather_kv_indices page_table softmax_scale causal window_size learnable_sink softcap
num_splits pack_gqa deterministic score_mod score_mod_bwd mask_mod block_sparse_tensors aux_tensors
aux_scalars return_lse scheduler_metadata seqlen_k_per_split disable_scheduler_metadata"""
TE_INIT = """
num_attention_heads kv_channels num_gqa_groups attention_dropout qkv_format
attn_mask_type window_size bottom_right_diagonal sequence_parallel tp_size get_rng_state_tracker
tp_group layer_number attention_type cp_group cp_global_ranks cp_stream cp_comm_type softmax_scale
softmax_type return_max_logit name"""
TE_FORWARD = """
query_layer key_layer value_layer attention_mask qkv_format cu_seqlens_q
cu_seqlens_kv cu_seqlens_q_padded cu_seqlens_kv_padded max_seqlen_q max_seqlen_kv attn_mask_type
window_size bottom_right_diagonal checkpoint_core_attention core_attention_bias_type
core_attention_bias alibi_slopes fast_zero_fill inference_params pad_between_seqs fp8_output
bf16_backward num_splits score_mod score_mod_bprop score_mod_tensors score_mod_bprop_tensors
qkv_layer kv_layer qkv_interleave_dim"""


class Recorder:
    """The arguments of each call, by the real function's names."""

    def __init__(self, parameters: str, compute: Callable[[dict[str, Any]], Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self._signature = inspect.Signature(
            [inspect.Parameter(name, kind, default=None) for name in parameters.split()]
        )
        self._compute = compute

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Refuses what the real function has no parameter for."""
        given = dict(self._signature.bind(*args, **kwargs).arguments)
        self.calls.append(given)
        return self._compute(given)


def varlen(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *, causal: bool) -> Tensor:
    """Bottom-right aligned attention inside segments; NaN where a query sees no key."""
    mask = Case(
        lengths_q=tuple(cu_q.diff().tolist()), lengths_k=tuple(cu_k.diff().tolist()), causal=causal
    ).mask()
    return dense(q, k, v, mask).masked_fill(~mask.any(dim=1)[:, None, None], float("nan"))


def flash(parameters: str, *, returns_logsumexp: bool) -> Recorder:
    """`flash_attn_varlen_func` of a generation."""

    def compute(given: dict[str, Any]) -> Any:
        out = varlen(
            given["q"], given["k"], given["v"], given["cu_seqlens_q"], given["cu_seqlens_k"],
            causal=given["causal"],
        )  # fmt: skip
        return (out, torch.zeros(1)) if returns_logsumexp else out

    return Recorder(parameters, compute)


class DotProductAttention:
    """Transformer Engine's module."""

    made: "list[DotProductAttention]"

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.init = Recorder(TE_INIT, lambda given: given)(*args, **kwargs)
        self.forward = Recorder(TE_FORWARD, self._compute)
        type(self).made.append(self)

    def _compute(self, given: dict[str, Any]) -> Tensor:
        q, k = given["query_layer"], given["key_layer"]
        assert given["qkv_format"] == "thd"
        assert q.shape[1:] == (self.init["num_attention_heads"], self.init["kv_channels"])
        assert k.shape[1] == self.init["num_gqa_groups"]
        causal = {"padding": False, "padding_causal_bottom_right": True}[given["attn_mask_type"]]
        out = varlen(
            q, k, given["value_layer"], given["cu_seqlens_q"], given["cu_seqlens_kv"], causal=causal
        )
        return out.flatten(1)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """As an nn.Module does."""
        return self.forward(*args, **kwargs)


def torch_varlen() -> Recorder:
    """`varlen_attn`; its parameters are checked against the installed torch."""
    from torch.nn.attention.varlen import varlen_attn

    def compute(given: dict[str, Any]) -> Tensor:
        assert given["enable_gqa"] == (given["query"].shape[1] != given["key"].shape[1])
        causal = {(-1, -1): False, (-1, 0): True}[given["window_size"]]
        return varlen(
            given["query"], given["key"], given["value"], given["cu_seq_q"], given["cu_seq_k"],
            causal=causal,
        )  # fmt: skip

    return Recorder(" ".join(inspect.signature(varlen_attn).parameters), compute)


def install(monkeypatch: pytest.MonkeyPatch, module: str, **names: object) -> None:
    """Make a module of this name importable, with these names in it."""
    import sys

    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        made = ModuleType(name)
        if end == len(parts):
            vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)
