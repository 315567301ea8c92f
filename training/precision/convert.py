"""Which linear layers of a model multiply in FP8, and turning them into such."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from torch import nn

from training.errors import ConfigError
from training.models.policy_model import PolicyModel
from training.precision.choose import Fp8Choice, token_multiple
from training.precision.emulate import EmulatedLinear
from training.precision.te_linear import te_linear
from training.precision.torchao_linear import swap_for_torchao

_VISION: Final = "vision"
# Layers that make the scales and shifts of norms: few operations, and all later ones feel them.
_NORMS: Final = ("norm", "modulation")


@dataclass(frozen=True, kw_only=True)
class Converted:
    """What `convert_linears` did.

    Attributes:
        choice: in what the layers multiply.
        names: layers that do, in the model's order.
        left: linear layers of the same blocks that do not, and why.
    """

    choice: Fp8Choice
    names: tuple[str, ...]
    left: Mapping[str, str]


def convert_linears(model: nn.Module, choice: Fp8Choice) -> Converted:
    """Let the linear layers of trunk and expert blocks multiply in FP8, in place.

    The vision tower, embeddings, projections into and out of the blocks, and norms stay as they
    are, and so does a layer whose features do not come in the multiples that kernels take. Names
    and values of parameters stay: checkpoints are those of the model without FP8. Before the
    model is shared among ranks and its optimizer is made.

    Args:
        model: on its device.
        choice: from `choose_fp8`.

    Raises:
        ConfigError: the model is not a `PolicyModel` with blocks, or none of its layers fit.
    """
    if choice.recipe is None:
        return Converted(choice=choice, names=(), left={})
    multiple = token_multiple(choice)
    names, left = [], {}
    for name, linear in _linears(model):
        if reason := _why_not(name, linear, multiple):
            left[name] = reason
        else:
            names.append(name)
    if not names:
        raise ConfigError(
            f"precision.fp8={choice.kind}: no linear layer of {type(model).__name__}'s blocks can"
            f" multiply in FP8 by {choice.recipe}: "
            + ("; ".join(f"{name}: {why}" for name, why in left.items()) or "it names no blocks")
        )
    if choice.kind == "torchao":
        swap_for_torchao(model, names, multiple)
        return Converted(choice=choice, names=tuple(names), left=left)
    for name in names:
        plain = model.get_submodule(name)
        assert isinstance(plain, nn.Linear)
        model.set_submodule(
            name,
            EmulatedLinear.of(plain, choice.recipe)
            if choice.kind == "emulate"
            else te_linear(plain, choice.recipe, multiple),
        )
    return Converted(choice=choice, names=tuple(names), left=left)


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Linear layers of the blocks that are no vision tower's."""
    if not isinstance(model, PolicyModel):
        return
    for blocks in model.blocks:
        if blocks.startswith(_VISION):
            continue
        for name, module in getattr(model, blocks).named_modules(prefix=blocks):
            if type(module) is nn.Linear:
                yield name, module


def _why_not(name: str, linear: nn.Linear, multiple: int) -> str | None:
    if any(part.startswith(_NORMS) for part in name.split(".")):
        return "modulates a norm"
    sizes = (linear.in_features, linear.out_features)
    if any(size % multiple for size in sizes):
        return f"{sizes[0]} to {sizes[1]} features, not multiples of {multiple}"
    return None
