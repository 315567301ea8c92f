from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from training.precision.blocks import rounded_to_fp8
from training.precision.config import Recipe
from training.precision.emulate import EmulatedLinear

RECIPES: Sequence[Recipe] = ("tensor", "block", "mx")


def layers(recipe: Recipe, *, bias: bool = True) -> tuple[nn.Linear, EmulatedLinear, Tensor]:
    torch.manual_seed(0)
    plain = nn.Linear(256, 128, bias=bias)
    return plain, EmulatedLinear.of(plain, recipe), torch.randn(128, 256)


def results(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, and gradients of a weighted sum of it."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    out = layer(x)
    torch.autograd.backward(
        (out * torch.randn(128, generator=torch.Generator().manual_seed(1))).sum()
    )
    assert x.grad is not None
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("bias", [True, False])
def test_products_differ_from_the_true_ones_by_rounding_and_not_more(
    recipe: Recipe, *, bias: bool
) -> None:
    plain, emulated, x = layers(recipe, bias=bias)
    for true, rounded in zip(results(plain, x), results(emulated, x), strict=True):
        error = float((rounded - true).norm() / true.norm())
        assert error < 0.06
    assert not torch.equal(emulated(x), plain(x))


def test_the_output_is_the_product_of_the_rounded_values() -> None:
    plain, emulated, x = layers("tensor")
    e4m3 = torch.float8_e4m3fn

    def rounded(values: Tensor) -> Tensor:
        scale = values.abs().max() / 448
        return (values / scale).to(e4m3).float() * scale

    expected = rounded(x) @ rounded(plain.weight.detach()).T + plain.bias
    torch.testing.assert_close(emulated(x), expected)


def test_gradients_are_products_of_a_gradient_in_e5m2() -> None:
    plain, emulated, x = layers("tensor", bias=False)
    x.requires_grad_()
    gradient = torch.randn(128, 128)
    emulated(x).backward(gradient)
    rounded = {
        name: rounded_to_fp8(value.detach(), dtype, tuple(value.shape), power_of_two=False)  # type: ignore[arg-type]
        for name, value, dtype in (
            ("gradient", gradient, torch.float8_e5m2),
            ("x", x, torch.float8_e4m3fn),
            ("weight", plain.weight, torch.float8_e4m3fn),
        )
    }
    assert x.grad is not None
    assert plain.weight.grad is not None
    torch.testing.assert_close(x.grad, rounded["gradient"] @ rounded["weight"])
    torch.testing.assert_close(plain.weight.grad, rounded["gradient"].T @ rounded["x"])


@pytest.mark.parametrize("recipe", RECIPES)
def test_small_blocks_keep_what_one_scale_for_all_loses(recipe: Recipe) -> None:
    plain, emulated, x = layers(recipe, bias=False)
    x[:, :128] *= 1e-6  # below what fp8 tells from 0 beside the others
    with torch.no_grad():
        plain.weight[:, 128:] = 0
    true, kept = plain(x).detach(), emulated(x).detach()
    error = float((kept - true).norm() / true.norm())
    assert (error > 0.9) if recipe == "tensor" else (error < 0.06)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_any_number_of_rows_goes_through(recipe: Recipe, rows: int) -> None:
    _, emulated, x = layers(recipe)
    x = x[:rows].requires_grad_()
    emulated(x).sum().backward()
    assert emulated(x).shape == (rows, 128)
    assert emulated.weight.grad is not None
    assert bool(emulated.weight.grad.isfinite().all())


def test_under_autocast_inputs_and_outputs_are_bfloat16_and_gradients_of_weights_float32() -> None:
    _, emulated, x = layers("tensor")
    x.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = emulated(x)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert x.grad is not None
    assert emulated.weight.grad is not None
    assert x.grad.dtype == emulated.weight.grad.dtype == torch.float32
    exact = emulated(x.bfloat16().float()).bfloat16()
    torch.testing.assert_close(out, exact)
