import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tests.training.batches import make_spans, pack, policy_spec
from training.errors import ConfigError
from training.loss import flow_matching_loss
from training.models.film.config import FilmConfig
from training.models.kinds import ModelConfig, build_model
from training.models.pi05.config import Pi05Config
from training.models.policy_model import PolicyModel
from training.precision.choose import OFF, Fp8Choice
from training.precision.convert import convert_linears
from training.precision.emulate import EmulatedLinear
from training.precision.te_linear import _te_linear_class
from training.precision.torchao_linear import swap_for_torchao

FILM = FilmConfig(
    width=32, expert_width=32, layers=2, heads=2, head_dim=16, conv_channels=(8, 16), flow_steps=2
)
PI05 = Pi05Config(
    width=32, mlp_width=64, expert_width=32, expert_mlp_width=64, layers=2, heads=2, kv_heads=1,
    head_dim=16, image_size=16, vision_width=32, vision_depth=1, vision_heads=2,
    vision_mlp_width=64, flow_steps=2, normalise="moments",
)  # fmt: skip


def policy(config: ModelConfig = FILM) -> PolicyModel:
    torch.manual_seed(0)
    return build_model(config, policy_spec())


def gradients(model: nn.Module, *, spans: int = 4) -> tuple[Tensor, dict[str, Tensor]]:
    batch = pack(make_spans(spans), pad=40).trimmed(multiple=16)
    model.zero_grad()
    loss = flow_matching_loss(model(batch), batch)
    torch.autograd.backward(loss)
    return loss.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def norm(values: dict[str, Tensor]) -> Tensor:
    total: Tensor = torch.cat([value.flatten() for value in values.values()]).norm()
    return total


@pytest.mark.parametrize("config", [FILM, PI05])
def test_layers_of_trunk_and_expert_are_converted_and_nothing_else_is(config: ModelConfig) -> None:
    model = policy(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    done = convert_linears(model, Fp8Choice(kind="emulate", recipe="tensor"))
    converted = {n for n, m in model.named_modules() if isinstance(m, EmulatedLinear)}
    assert converted == set(done.names)
    assert {name.split(".")[0] for name in converted} == (
        {"text_layers", "trunk", "expert"} if config is FILM else {"trunk", "expert"}
    )
    assert {"trunk.0.qkv", "trunk.0.out", "trunk.0.mlp.down", "expert.1.qkv"} <= converted
    assert not any("norm" in name or "modulation" in name for name in converted)
    assert set(done.left.values()) == {"modulates a norm"}
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("config", [FILM, PI05])
@pytest.mark.parametrize("spans", [4, 0])
def test_a_converted_policy_learns_what_the_plain_one_does_up_to_rounding(
    config: ModelConfig, spans: int
) -> None:
    plain, emulated = policy(config), policy(config)
    convert_linears(emulated, Fp8Choice(kind="emulate", recipe="tensor"))
    (loss, true), (rounded_loss, rounded) = (
        gradients(plain, spans=spans), gradients(emulated, spans=spans),
    )  # fmt: skip
    assert rounded.keys() == true.keys()
    torch.testing.assert_close(rounded_loss, loss, rtol=0.02, atol=0)
    difference = norm({name: rounded[name] - true[name] for name in true})
    assert float(difference) <= 0.1 * float(norm(true))
    assert (float(difference) > 0) == (spans > 0)


def test_layers_of_other_sizes_are_left_and_reported() -> None:
    model = policy(FilmConfig(**{**vars(FILM), "expert_width": 40}))
    done = convert_linears(model, Fp8Choice(kind="emulate", recipe="tensor"))
    assert done.left["expert.0.qkv"] == "40 to 96 features, not multiples of 16"
    assert "trunk.0.qkv" in done.names
    with pytest.raises(ConfigError, match=r"multiply in FP8 by block: text_layers\.0\.qkv: 32 to"):
        convert_linears(policy(), Fp8Choice(kind="emulate", recipe="block"))


def test_a_model_that_names_no_blocks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no linear layer of Sequential's blocks.*no blocks"):
        convert_linears(
            nn.Sequential(nn.Linear(16, 16)), Fp8Choice(kind="emulate", recipe="tensor")
        )


def test_off_changes_nothing() -> None:
    model = policy()
    assert convert_linears(model, OFF).names == ()
    assert not any(isinstance(module, EmulatedLinear) for module in model.modules())


class FakeTeLinear(nn.Linear):
    """The face of `transformer_engine.pytorch.Linear` that is used here."""

    seen: ClassVar[list[dict[str, Any]]] = []
    inside: ClassVar[list[Any]] = []
    rows: ClassVar[list[int]] = []

    def __init__(self, in_features: int, out_features: int, **given: Any) -> None:
        assert given.keys() == {"bias", "params_dtype", "device"}
        super().__init__(in_features, out_features, bias=given["bias"], dtype=given["params_dtype"])
        self.seen.append(given)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        assert self.inside, "outside of te.autocast nothing would be in FP8"
        self.rows.append(len(input))
        return super().forward(input)

    def get_extra_state(self) -> Tensor:
        return torch.zeros(1)

    def set_extra_state(self, _state: Tensor) -> None:
        raise AssertionError("its state is not kept")


@pytest.fixture
def fake_te(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    recipes: list[Any] = []

    @contextmanager
    def autocast(*, enabled: bool, recipe: Any) -> Iterator[None]:
        assert enabled
        recipes.append(type(recipe).__name__)
        FakeTeLinear.inside.append(recipe)
        yield
        FakeTeLinear.inside.pop()

    te: Any = ModuleType("transformer_engine.pytorch")
    te.Linear, te.autocast = FakeTeLinear, autocast
    recipe: Any = ModuleType("transformer_engine.common.recipe")
    for name in ("Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling"):
        setattr(recipe, name, type(name, (), {}))
    for name in ("transformer_engine", "transformer_engine.common"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch", te)
    monkeypatch.setitem(sys.modules, "transformer_engine.common.recipe", recipe)
    FakeTeLinear.seen, FakeTeLinear.rows = [], []
    _te_linear_class.cache_clear()
    yield recipes
    _te_linear_class.cache_clear()


@pytest.mark.parametrize(
    ("recipe", "name", "multiple"),
    [("tensor", "Float8CurrentScaling", 16), ("mx", "MXFP8BlockScaling", 32)],
)
def test_layers_of_transformer_engine_take_the_place_of_torchs(
    fake_te: list[Any], recipe: Any, name: str, multiple: int
) -> None:
    plain, converted = policy(), policy()
    done = convert_linears(converted, Fp8Choice(kind="te", recipe=recipe))
    assert done.names
    assert all(isinstance(converted.get_submodule(n), FakeTeLinear) for n in done.names)
    assert FakeTeLinear.seen[0] == {
        "bias": False, "params_dtype": torch.float32, "device": torch.device("cpu"),
    }  # fmt: skip
    assert list(converted.state_dict()) == list(plain.state_dict())
    converted.load_state_dict(plain.state_dict())
    (loss, true), (te_loss, gradient) = gradients(plain), gradients(converted)
    torch.testing.assert_close(te_loss, loss)
    torch.testing.assert_close(gradient, true, rtol=1e-4, atol=1e-5)
    assert set(fake_te) == {name}
    assert all(rows % multiple == 0 for rows in FakeTeLinear.rows)


@pytest.mark.usefixtures("fake_te")
def test_transformer_engine_stays_in_fp8_where_activations_are_computed_again() -> None:
    model = policy()
    convert_linears(model, Fp8Choice(kind="te", recipe="tensor"))
    layer = model.get_submodule("trunk.0.mlp")
    x = torch.randn(16, 32, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    assert isinstance(out, Tensor)
    before = len(FakeTeLinear.rows)
    torch.autograd.backward(out.sum())
    assert len(FakeTeLinear.rows) == before + 2


def test_torchao_rounds_as_emulation_does() -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    emulated, swapped = policy(), policy()
    names = convert_linears(emulated, Fp8Choice(kind="emulate", recipe="tensor")).names
    swap_for_torchao(swapped, names, 16, emulate=True)
    assert list(swapped.state_dict()) == list(emulated.state_dict())
    assert {type(swapped.get_submodule(name)).__name__ for name in names} == {"TorchaoLinear"}
    for spans in (4, 0):
        (loss, one), (other_loss, other) = (
            gradients(emulated, spans=spans), gradients(swapped, spans=spans),
        )  # fmt: skip
        torch.testing.assert_close(other_loss, loss, rtol=1e-4, atol=0)
        difference = norm({name: other[name] - one[name] for name in one})
        # A value that lies between two of FP8 may go either way.
        assert float(difference) <= 0.02 * float(norm(one))


def test_torchao_is_told_which_layers_and_no_others() -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    model = policy()
    swap_for_torchao(model, ["trunk.0.qkv"], 16)
    kinds = {name for name, m in model.named_modules() if type(m).__name__ == "TorchaoLinear"}
    assert kinds == {"trunk.0.qkv"}
    layer: Any = model.get_submodule("trunk.0.qkv")
    assert not layer.config.emulate
