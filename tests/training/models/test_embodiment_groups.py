"""Layers for many embodiments: each row through its own weights, whatever kernel multiplies."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor

from training.models.parts import embodiment_groups
from training.models.parts.embodiment_groups import EmbodimentGroups, GroupedLinear, GroupedMlp

IDS = torch.tensor([4, 1, 1, 4, 0, 4, 1])
ABSENT = [2, 3]
Results = tuple[Tensor, dict[str, Tensor]]


def results(layer: GroupedMlp, x: Tensor, ids: Tensor) -> Results:
    layer.zero_grad()
    out = layer(x, EmbodimentGroups.of(ids, 5))
    torch.autograd.backward(out.square().sum())
    gradients = {n: p.grad.clone() for n, p in layer.named_parameters() if p.grad is not None}
    return out.detach(), gradients


def by_hand(layer: GroupedMlp, x: Tensor, ids: Tensor) -> Tensor:
    one, two = layer.layer_1, layer.layer_2
    rows = []
    for row, kind in zip(x, ids.tolist(), strict=True):
        hidden = F.relu(row @ one.weight[kind] + one.bias[kind])
        rows.append(hidden @ two.weight[kind] + two.bias[kind])
    return torch.stack(rows)


def filled(layer: GroupedMlp) -> GroupedMlp:
    for part in (layer.layer_1, layer.layer_2):
        torch.nn.init.normal_(part.bias)
    return layer


def test_every_row_goes_through_the_weights_of_its_embodiment() -> None:
    torch.manual_seed(0)
    layer, x = filled(GroupedMlp(5, 3, 6, 2)), torch.randn(len(IDS), 3)
    out, gradients = results(layer, x, IDS)
    torch.testing.assert_close(out, by_hand(layer, x, IDS).detach())
    for gradient in gradients.values():
        reached = gradient.flatten(1).any(dim=1)
        assert reached.tolist() == [kind not in ABSENT for kind in range(5)]


def test_the_grouped_kernel_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = filled(GroupedMlp(5, 4, 8, 4)), torch.randn(len(IDS), 4)
    want = results(layer, x, IDS)
    calls = []
    product = embodiment_groups._grouped_mm

    def counted(x: Tensor, weight: Tensor, groups: EmbodimentGroups) -> Tensor:
        calls.append(weight.shape)
        return product(x, weight, groups)

    monkeypatch.setattr(embodiment_groups, "_grouped_mm", counted)
    monkeypatch.setattr(embodiment_groups, "_grouped_kernel", lambda _: True)
    out, gradients = results(layer, x, IDS)
    assert len(calls) == 2
    torch.testing.assert_close(out, want[0])
    for name, gradient in want[1].items():
        torch.testing.assert_close(gradients[name], gradient)


def test_what_a_kernel_leaves_as_gradient_of_an_absent_embodiment_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on some devices it does: github.com/pytorch/pytorch/issues/172439."""

    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(weight)
            return x.new_zeros(len(x), weight.shape[2])

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, _: Tensor) -> tuple[None, Tensor]:
            (weight,) = ctx.saved_tensors  # type: ignore[attr-defined]
            return None, torch.full_like(weight, float("nan"))

    def careless(x: Tensor, weight: Tensor, *, offs: Tensor) -> Tensor:
        assert offs.tolist() == [1, 4, 4, 4, 7]
        out: Tensor = Careless.apply(x, weight)  # type: ignore[no-untyped-call]
        return out

    monkeypatch.setattr(F, "grouped_mm", careless)
    monkeypatch.setattr(embodiment_groups, "_grouped_kernel", lambda _: True)
    layer = GroupedLinear(5, 4, 8)
    layer(torch.randn(len(IDS), 4), EmbodimentGroups.of(IDS, 5)).sum().backward()
    assert layer.weight.grad is not None
    left = layer.weight.grad.isnan().flatten(1).all(dim=1)
    assert left.tolist() == [kind not in ABSENT for kind in range(5)]
    assert not layer.weight.grad[ABSENT].any()


@pytest.mark.parametrize("embodiments", [1, 5])
def test_no_row_gives_zero_gradients_to_all(embodiments: int) -> None:
    layer = GroupedMlp(embodiments, 3, 6, 2)
    none = torch.zeros(0, dtype=torch.int64)
    out = layer(torch.zeros(0, 3), EmbodimentGroups.of(none, embodiments))
    assert out.shape == (0, 2)
    out.sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_the_kernel_gives_what_the_host_does() -> None:
    torch.manual_seed(0)
    layer = filled(GroupedMlp(5, 64, 128, 32)).to(torch.bfloat16)
    x = torch.randn(len(IDS), 64, dtype=torch.bfloat16)
    want = results(layer, x, IDS)
    out, gradients = results(layer.cuda(), x.cuda(), IDS.cuda())
    torch.testing.assert_close(out.cpu(), want[0], rtol=2e-2, atol=2e-2)
    for name, gradient in want[1].items():
        torch.testing.assert_close(gradients[name].cpu(), gradient, rtol=3e-2, atol=3e-1)
        assert not gradients[name][ABSENT].any()
