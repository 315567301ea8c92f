"""Linear layers of Transformer Engine in FP8, with parameters named as those of `nn.Linear`.

Transformer Engine 2.9 or newer; facts are those of its documentation
(docs.nvidia.com/deeplearning/transformer-engine). Attention is left alone: FP8 products go with
BF16 attention.
"""

import functools
import importlib
from typing import Any, Final

import torch
from torch import Tensor, nn

from training.precision.config import Recipe
from training.precision.whole_rows import WholeRows

_RECIPES: Final[dict[Recipe, str]] = {
    "tensor": "Float8CurrentScaling",
    "block": "Float8BlockScaling",
    "mx": "MXFP8BlockScaling",
}


def te_linear(linear: nn.Linear, recipe: Recipe, multiple: int) -> nn.Module:
    """The layer in Transformer Engine, with a copy of the parameters on the same device.

    Args:
        linear: to take the place of.
        recipe: what shares a scale.
        multiple: of rows.
    """
    kind = _te_linear_class()
    layer: Any = kind(
        linear.in_features,
        linear.out_features,
        bias=linear.bias is not None,
        params_dtype=linear.weight.dtype,
        device=linear.weight.device,
    )
    with torch.no_grad():
        layer.weight.copy_(linear.weight)
        if linear.bias is not None:
            layer.bias.copy_(linear.bias)
    layer.multiple = multiple
    recipes = importlib.import_module("transformer_engine.common.recipe")
    layer.scaling = getattr(recipes, _RECIPES[recipe])()
    assert isinstance(layer, nn.Module)
    return layer


@functools.cache
def _te_linear_class() -> type[Any]:
    te = importlib.import_module("transformer_engine.pytorch")

    def forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002, ANN401
        # Here and not around the model: where activations are computed again for the backward
        # pass, that happens outside of whatever stood around the forward pass.
        with te.autocast(enabled=True, recipe=self.scaling):
            return WholeRows.forward(self, input)

    return type(
        "TeLinear",
        (WholeRows, te.Linear),
        {
            "forward": forward,
            # These recipes remember nothing from step to step, and a checkpoint is the same
            # whatever the format of the products.
            "get_extra_state": nn.Module.get_extra_state,
            "set_extra_state": nn.Module.set_extra_state,
        },
    )
