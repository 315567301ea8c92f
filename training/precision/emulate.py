"""Linear layers that round as FP8 does and multiply in float32: FP8's loss curve on any device."""

from typing import Any, Final, NamedTuple, Self

import torch
from torch import Tensor, nn

from training.precision.blocks import Block, rounded_to_fp8
from training.precision.config import Recipe

_E4M3: Final = torch.float8_e4m3fn


class _Rounding(NamedTuple):
    """How a recipe rounds.

    Blocks are (of what a product keeps, of what it sums over), None for the whole tensor.
    """

    gradient: torch.dtype
    block: Block | None
    weight_block: Block | None
    power_of_two: bool


# As in `transformer_engine.common.recipe` by default.
_ROUNDING: Final[dict[Recipe, _Rounding]] = {
    "tensor": _Rounding(
        gradient=torch.float8_e5m2, block=None, weight_block=None, power_of_two=False
    ),
    "block": _Rounding(gradient=_E4M3, block=(1, 128), weight_block=(128, 128), power_of_two=True),
    "mx": _Rounding(gradient=_E4M3, block=(1, 32), weight_block=(1, 32), power_of_two=True),
}


class EmulatedLinear(nn.Linear):
    """`nn.Linear` whose three products (forward, to the input, to the weights) take FP8 values.

    Sums are in float32, as on the GPU; results have the dtype that `nn.Linear`'s would have.

    Attributes:
        recipe: what shares a scale.
    """

    recipe: Recipe

    @classmethod
    def of(cls, linear: nn.Linear, recipe: Recipe) -> Self:
        """The same layer, with the same parameters."""
        with torch.device("meta"):
            emulated = cls(linear.in_features, linear.out_features, bias=False)
        emulated.weight, emulated.bias = linear.weight, linear.bias
        emulated.recipe = recipe
        return emulated

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name that nn.Linear gives it)
        """[..., in] -> [..., out]."""
        device = input.device.type
        dtype = input.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            rows = input.to(dtype).reshape(-1, self.in_features)
            product: Tensor = _Fp8Product.apply(rows.float(), self.weight.float(), self.recipe)  # type: ignore[no-untyped-call]
            if self.bias is not None:
                product = product + self.bias.float()
            return product.to(dtype).reshape(*input.shape[:-1], self.out_features)


class _Fp8Product(torch.autograd.Function):
    """[R, K] float32, [N, K] float32 -> [R, N] float32."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, recipe: Recipe) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(rows, weight)
        ctx.how = how = _ROUNDING[recipe]
        return (
            _rounded(rows, _E4M3, how.block, how)
            @ _rounded(weight, _E4M3, how.weight_block, how).mT
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        rows, weight = ctx.saved_tensors
        how: _Rounding = ctx.how
        to_rows = to_weight = None
        with torch.autocast(gradient.device.type, enabled=False):
            # A block lies along what is summed over: N for the input, R for the weights.
            if ctx.needs_input_grad[0]:
                across = _rounded(gradient, how.gradient, how.block, how)
                to_rows = across @ _rounded(weight.mT, _E4M3, how.weight_block, how).mT
            if ctx.needs_input_grad[1]:
                down = _rounded(gradient.mT, how.gradient, how.block, how)
                to_weight = down @ _rounded(rows.mT, _E4M3, how.block, how).mT
        return to_rows, to_weight, None


def _rounded(matrix: Tensor, dtype: torch.dtype, block: Block | None, how: _Rounding) -> Tensor:
    high, wide = block or matrix.shape
    return rounded_to_fp8(
        matrix, dtype, (max(high, 1), max(wide, 1)), power_of_two=how.power_of_two
    )
