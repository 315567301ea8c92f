import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.training.batches import make_spans, pack
from training.errors import ConfigError
from training.precision.choose import OFF, Fp8Choice, choose_fp8, require_aligned, token_multiple
from training.precision.config import Fp8, PrecisionConfig, Recipe

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def config(fp8: Fp8, **others: Any) -> PrecisionConfig:
    return PrecisionConfig(fp8=fp8, **{"dtype": "bf16", **others})


def put_te(monkeypatch: pytest.MonkeyPatch, *, mx: bool, block: bool = True) -> None:
    """A Transformer Engine that says what a GPU of some generation does."""

    def says(answer: tuple[bool, str]) -> Any:
        return lambda return_reason=False: answer if return_reason else answer[0]

    module: Any = ModuleType("transformer_engine.pytorch")
    module.is_fp8_available = says((True, ""))
    module.is_mxfp8_available = says((True, "") if mx else (False, "10.0 or higher required"))
    module.is_fp8_block_scaling_available = says((block, "" if block else "CUDA 12.9 required"))
    monkeypatch.setitem(sys.modules, "transformer_engine", ModuleType("transformer_engine"))
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch", module)


def put_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_off_and_emulate_are_taken_as_asked() -> None:
    assert choose_fp8(PrecisionConfig(), CPU) == OFF
    assert token_multiple(OFF) == 1
    choice = choose_fp8(PrecisionConfig(fp8="emulate"), CPU)
    assert (choice.kind, choice.recipe) == ("emulate", "tensor")
    choice = choose_fp8(config("emulate", recipe="block"), CPU)
    assert (choice.recipe, token_multiple(choice)) == ("block", 128)


def test_auto_is_off_where_there_is_no_gpu_and_says_why() -> None:
    choice = choose_fp8(config("auto"), CPU)
    assert choice.kind == "off"
    assert "te: Transformer Engine needs an NVIDIA GPU, this is a cpu" in choice.reason
    assert "torchao" in choice.reason


def test_auto_is_off_where_the_rest_is_not_in_bf16() -> None:
    choice = choose_fp8(config("auto", dtype="fp32"), CUDA)
    assert choice.kind == "off"
    assert "precision.dtype is fp32" in choice.reason


@pytest.mark.parametrize("fp8", ["te", "torchao"])
def test_what_is_asked_for_by_name_and_cannot_run_is_refused(fp8: Fp8) -> None:
    with pytest.raises(ConfigError, match=f"precision.fp8={fp8} cannot run here: .*NVIDIA GPU"):
        choose_fp8(config(fp8), CPU)


@pytest.mark.parametrize(
    ("capability", "mx", "recipe", "multiple", "generation"),
    [((9, 0), False, "tensor", 16, "before Blackwell"), ((10, 0), True, "mx", 32, "Blackwell")],
)
def test_transformer_engine_comes_first_with_the_recipe_of_the_generation(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    recipe: Recipe,
    multiple: int,
    generation: str,
    *,
    mx: bool,
) -> None:
    put_gpu(monkeypatch, capability)
    put_te(monkeypatch, mx=mx)
    for asked in ("auto", "te"):
        choice = choose_fp8(config(asked), CUDA)
        assert (choice.kind, choice.recipe) == ("te", recipe)
        assert choice.reason.endswith(generation)
        assert token_multiple(choice) == multiple


def test_a_recipe_that_the_gpu_lacks_is_refused_with_the_reason_of_transformer_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_gpu(monkeypatch, (9, 0))
    put_te(monkeypatch, mx=False, block=False)
    with pytest.raises(ConfigError, match=r"10\.0 or higher required"):
        choose_fp8(config("te", recipe="mx"), CUDA)
    choice = choose_fp8(config("auto", recipe="block"), CUDA)
    assert choice.kind == "off"
    assert "CUDA 12.9 required" in choice.reason
    assert "torchao trains with one scale for a tensor, not by block" in choice.reason


def test_torchao_comes_where_transformer_engine_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "transformer_engine", "transformer_engine.pytorch")
    monkeypatch.setitem(sys.modules, "torchao", ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.float8", ModuleType("torchao.float8"))
    put_gpu(monkeypatch, (8, 9))
    assert choose_fp8(config("auto"), CUDA).kind == "torchao"
    put_gpu(monkeypatch, (8, 0))
    choice = choose_fp8(config("auto"), CUDA)
    assert choice.kind == "off"
    assert "this GPU has 8.0" in choice.reason


def test_an_engine_that_does_not_load_is_a_reason_whatever_it_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Transformer Engine raises a RuntimeError where its libraries do not fit.
    def broken(_name: str) -> ModuleType:
        raise RuntimeError("x")

    monkeypatch.setattr("training.precision.choose.importlib.import_module", broken)
    put_gpu(monkeypatch, (9, 0))
    choice = choose_fp8(config("auto"), CUDA)
    assert choice.reason == (
        "te: Transformer Engine (2.9 or newer) cannot be loaded: x; torchao: torchao cannot be"
        " loaded: x"
    )


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"fp8": "te"}, "precision.fp8=te needs precision.dtype=bf16"),
        ({"fp8": "torchao", "dtype": "bf16", "recipe": "mx"}, "not one of torchao's"),
        ({"recipe": "mx"}, "says nothing with precision.fp8=off"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        PrecisionConfig(**values)


def test_a_batch_that_fp8_kernels_would_not_take_is_refused_on_a_cpu_too() -> None:
    choice = Fp8Choice(kind="emulate", recipe="mx")
    batch = pack(make_spans(3), pad=64)
    aligned = batch.trimmed(multiple=32)
    require_aligned(aligned, choice)
    crooked = batch.trimmed(multiple=1)
    assert len(crooked.input_ids) % 32
    with pytest.raises(ConfigError, match=r"pack 0 of plan plan has \d+ tokens.*multiple of 32"):
        require_aligned(crooked, choice)
    require_aligned(crooked, OFF)
