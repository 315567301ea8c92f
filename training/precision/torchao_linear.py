"""Linear layers of torchao in FP8 (torchao.float8 of 0.12 or newer)."""

import importlib
from collections.abc import Collection

from torch import nn

from training.precision.whole_rows import WholeRows


def swap_for_torchao(
    model: nn.Module, names: Collection[str], multiple: int, *, emulate: bool = False
) -> None:
    """Turn linear layers into torchao's, in place and with the same parameters.

    Args:
        model: that holds them.
        names: of the layers, as `named_modules` has them.
        multiple: of rows.
        emulate: let torchao multiply in high precision what it rounded: on any device.
    """
    float8 = importlib.import_module("torchao.float8")
    float8.convert_to_float8_training(
        model,
        module_filter_fn=lambda _module, name: name in names,
        config=float8.Float8LinearConfig(emulate=emulate),
    )
    for name in names:
        layer = model.get_submodule(name)
        layer.__class__ = type("TorchaoLinear", (WholeRows, type(layer)), {"multiple": multiple})
