"""Backends that need a GPU: what they hand to their library, and why they are refused elsewhere."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.training.attention import libraries
from tests.training.attention.dense import HIDING, PLAIN, Case, assert_equals_dense
from training.attention.varlen import BACKENDS, use_backend, varlen_attention
from training.errors import ConfigError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
KERNELS = ("flash2", "flash3", "flash4", "te_thd", "torch_varlen")
SELF = Case(lengths_q=(3, 4), lengths_k=(3, 4))
CROSS = Case(lengths_q=(3, 4), lengths_k=(9, 5), causal=True, kv_heads=2)


@dataclass
class Stand:
    """Stand-in of a library, and the arguments of its calls."""

    name: str
    calls: Callable[[], list[dict[str, Any]]]


@pytest.fixture(params=KERNELS)
def stand(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stand:
    name: str = request.param
    if name == "te_thd":
        monkeypatch.setattr(libraries.DotProductAttention, "made", [], raising=False)
        libraries.install(
            monkeypatch,
            "transformer_engine.pytorch",
            DotProductAttention=libraries.DotProductAttention,
        )
        made = libraries.DotProductAttention.made
        return Stand(name, lambda: [call for module in made for call in module.forward.calls])
    if name == "torch_varlen":
        recorder = libraries.torch_varlen()

        def varlen_attn(*args: object, window_size: object, enable_gqa: object, **more: Any) -> Any:
            return recorder(*args, window_size=window_size, enable_gqa=enable_gqa, **more)

        libraries_module = "torch.nn.attention.varlen"
        monkeypatch.setattr(f"{libraries_module}.varlen_attn", varlen_attn)
        return Stand(name, lambda: recorder.calls)
    module, parameters, returns_logsumexp = {
        "flash2": ("flash_attn", libraries.FLASH_2, False),
        "flash3": ("flash_attn_interface", libraries.FLASH_3, False),
        "flash4": ("flash_attn.cute", libraries.FLASH_4, True),
    }[name]
    recorder = libraries.flash(parameters, returns_logsumexp=returns_logsumexp)
    libraries.install(
        monkeypatch,
        module,
        flash_attn_varlen_func=recorder,
    )
    return Stand(name, lambda: recorder.calls)


@pytest.mark.parametrize("name", PLAIN)
def test_output_and_gradients_are_those_of_a_dense_mask(stand: Stand, name: str) -> None:
    """Also where the kernel leaves NaN at queries that see nothing."""
    with use_backend(stand.name):
        assert_equals_dense(varlen_attention, PLAIN[name])


def arguments(stand: Stand, case: Case) -> dict[str, Any]:
    q, k, v, _ = case.inputs(torch.bfloat16)
    with use_backend(stand.name):
        varlen_attention(q, k, v, case.segments())
    (call,) = stand.calls()
    return call


def test_starts_and_longest_segments_arrive_under_the_names_of_the_library(stand: Stand) -> None:
    call = arguments(stand, CROSS)
    names = {
        "te_thd": ("cu_seqlens_q", "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv"),
        "torch_varlen": ("cu_seq_q", "cu_seq_k", "max_q", "max_k"),
    }.get(stand.name, ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"))
    assert [call[name].tolist() for name in names[:2]] == [[0, 3, 7, 7, 7], [0, 9, 14, 14, 14]]
    assert [call[name] for name in names[2:]] == [4, 9]


def test_causal_masks_are_aligned_at_the_bottom_right(stand: Stand) -> None:
    call = arguments(stand, CROSS)
    name, value = {
        "te_thd": ("attn_mask_type", "padding_causal_bottom_right"),
        "torch_varlen": ("window_size", (-1, 0)),
    }.get(stand.name, ("causal", True))
    assert call[name] == value


@pytest.mark.parametrize("deterministic", [False, True])
def test_flash_is_told_whether_to_be_deterministic(stand: Stand, *, deterministic: bool) -> None:
    if not stand.name.startswith("flash"):
        pytest.skip("reads torch's setting itself")
    torch.use_deterministic_algorithms(deterministic)
    try:
        assert arguments(stand, SELF)["deterministic"] is deterministic
    finally:
        torch.use_deterministic_algorithms(False)


def test_transformer_engine_makes_a_module_for_each_kind_of_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(libraries.DotProductAttention, "made", [], raising=False)
    libraries.install(
        monkeypatch, "transformer_engine.pytorch", DotProductAttention=libraries.DotProductAttention
    )
    with use_backend("te_thd"):
        for case in (SELF, CROSS, SELF, CROSS):
            q, k, v, _ = case.inputs(torch.bfloat16)
            varlen_attention(q, k, v, case.segments())
    one, other = libraries.DotProductAttention.made
    assert (one.init["num_gqa_groups"], one.init["attention_type"]) == (4, "self")
    assert (other.init["num_gqa_groups"], other.init["attention_type"]) == (2, "cross")
    assert one.init["attention_dropout"] == 0.0
    assert len(one.forward.calls) == len(other.forward.calls) == 2


def test_hidden_keys_are_refused(stand: Stand) -> None:
    case = next(iter(HIDING.values()))
    q, k, v, _ = case.inputs()
    with (
        use_backend(stand.name),
        pytest.raises(ConfigError, match=f"{stand.name} takes no key mask: .* sdpa or flex"),
    ):
        varlen_attention(q, k, v, case.segments())


def test_the_stand_in_of_torch_has_the_parameters_that_are_used() -> None:
    from torch.nn.attention.varlen import varlen_attn

    used = {"cu_seq_q", "cu_seq_k", "max_q", "max_k", "window_size", "enable_gqa"}
    assert used <= inspect.signature(varlen_attn).parameters.keys()


@pytest.mark.parametrize("name", KERNELS)
def test_a_cpu_is_refused(name: str) -> None:
    assert BACKENDS[name].refusal(CPU, torch.bfloat16) == "runs on CUDA devices only, not on cpu"


@pytest.mark.parametrize("name", KERNELS)
def test_single_precision_is_refused(name: str) -> None:
    reason = BACKENDS[name].refusal(CUDA, torch.float32)
    assert reason == "takes float16 and bfloat16, not float32 (precision.dtype=bf16)"


@pytest.mark.parametrize(
    ("name", "capability", "wanted"),
    [
        ("flash2", (7, 5), "8.0 or more"),
        ("flash3", (10, 0), "8.0 to 9.0"),
        ("flash4", (8, 0), "9.0 or more"),
        ("te_thd", (7, 5), "8.0 or more"),
        ("torch_varlen", (7, 5), "8.0 or more"),
    ],
)
def test_a_gpu_of_another_kind_is_refused(
    name: str, capability: tuple[int, int], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    reason = BACKENDS[name].refusal(CUDA, torch.bfloat16)
    found = f"{capability[0]}.{capability[1]}"
    assert reason == f"wants compute capability {wanted}, this device has {found}"


@pytest.mark.parametrize("error", [RuntimeError, OSError, ImportError])
def test_a_library_that_cannot_be_imported_is_refused_with_what_it_said(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_name: str) -> object:
        raise error("no CUDA runtime\nand more")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr("importlib.import_module", refuse)
    reason = BACKENDS["te_thd"].refusal(CUDA, torch.bfloat16)
    assert reason == (
        "transformer_engine.pytorch.DotProductAttention cannot be imported:"
        f" {error.__name__}: no CUDA runtime"
    )


def test_a_torch_that_lacks_parameters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(query: object, key: object, value: object, *, is_causal: bool) -> object:
        return query, key, value, is_causal

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", older)
    reason = BACKENDS["torch_varlen"].refusal(CUDA, torch.bfloat16)
    assert (
        reason == f"varlen_attn of torch {torch.__version__} has no enable_gqa and no window_size"
    )
