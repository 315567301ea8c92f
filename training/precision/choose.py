"""Which FP8 a run computes in: what was asked for, where the device has it."""

import importlib
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from loader.batch import PackedBatch
from training.errors import ConfigError
from training.precision.config import PrecisionConfig, Recipe

_MULTIPLES: Final[dict[Recipe, int]] = {"tensor": 16, "mx": 32, "block": 128}
_ADA: Final = (8, 9)
_BLACKWELL: Final = (10, 0)


@dataclass(frozen=True, kw_only=True)
class Fp8Choice:
    """How the products of the blocks' linear layers are computed.

    Attributes:
        kind: `off` leaves them as they are.
        recipe: what shares a scale; None with `off`.
        reason: why this one, for the run's record.
    """

    kind: Literal["off", "te", "torchao", "emulate"]
    recipe: Recipe | None = None
    reason: str = ""


OFF: Final = Fp8Choice(kind="off", reason="precision.fp8=off")


def choose_fp8(config: PrecisionConfig, device: torch.device) -> Fp8Choice:
    """Find out what the device can do; `auto` without FP8 on it is `off`, with the reason.

    Raises:
        ConfigError: what was asked for by name cannot run here, and why.
    """
    if config.fp8 == "off":
        return OFF
    recipe: Recipe | None = None if config.recipe == "auto" else config.recipe
    if config.fp8 == "emulate":
        return Fp8Choice(kind="emulate", recipe=recipe or "tensor", reason="precision.fp8=emulate")
    if config.fp8 == "auto" and config.dtype != "bf16":
        return Fp8Choice(
            kind="off", reason="FP8 goes with BF16 for all the rest, and precision.dtype is fp32"
        )
    refused = {}
    for kind in ("te", "torchao"):
        if config.fp8 not in {"auto", kind}:
            continue
        found = _te(recipe, device) if kind == "te" else _torchao(recipe, device)
        if isinstance(found, Fp8Choice):
            return found
        refused[kind] = found
    why = "; ".join(f"{kind}: {reason}" for kind, reason in refused.items())
    if config.fp8 == "auto":
        return Fp8Choice(kind="off", reason=why)
    raise ConfigError(
        f"precision.fp8={config.fp8} cannot run here: {refused[config.fp8]}; use off, auto, or"
        " emulate, which has FP8's rounding but not its speed"
    )


def token_multiple(choice: Fp8Choice) -> int:
    """What the number of rows of a product must be a multiple of, and its numbers of features."""
    return 1 if choice.recipe is None else _MULTIPLES[choice.recipe]


def require_aligned(batch: PackedBatch[Any], choice: Fp8Choice) -> None:
    """Refuse a batch whose prefix stream FP8 kernels would not take.

    torch's own product in FP8 checks nothing on a CPU, so that a mistake would show on a GPU only.
    Other streams are not the plan's to align: `training.precision.whole_rows` fills them up.

    Raises:
        ConfigError: T is no multiple of `token_multiple(choice)`.
    """
    tokens, multiple = len(batch.input_ids), token_multiple(choice)
    if tokens % multiple:
        raise ConfigError(
            f"pack {batch.pack} of plan {batch.plan_hash} has {tokens} tokens, and FP8 by"
            f" {choice.recipe} wants a multiple of {multiple}: cut it with"
            f" trimmed(multiple={multiple}), not closer"
        )


def _te(recipe: Recipe | None, device: torch.device) -> Fp8Choice | str:
    """Transformer Engine, or why it cannot run."""
    if device.type != "cuda":
        return f"Transformer Engine needs an NVIDIA GPU, this is a {device.type}"
    try:
        te = importlib.import_module("transformer_engine.pytorch")
        available = {
            "tensor": te.is_fp8_available,
            "block": te.is_fp8_block_scaling_available,
            "mx": te.is_mxfp8_available,
        }
        if recipe is None:
            recipe = "mx" if available["mx"]() else "tensor"
        can, reason = available[recipe](return_reason=True)
    except Exception as error:  # noqa: BLE001  # what it raises where it cannot run is not said
        return f"Transformer Engine (2.9 or newer) cannot be loaded: {error}"
    if not can:
        return str(reason)
    generation = "Blackwell" if _capability(device) >= _BLACKWELL else "before Blackwell"
    return Fp8Choice(kind="te", recipe=recipe, reason=f"Transformer Engine, GPU {generation}")


def _torchao(recipe: Recipe | None, device: torch.device) -> Fp8Choice | str:
    """torchao, or why it cannot run."""
    if recipe not in {None, "tensor"}:
        return f"torchao trains with one scale for a tensor, not by {recipe}"
    if device.type != "cuda":
        return f"torchao's FP8 needs an NVIDIA GPU, this is a {device.type}"
    if (has := _capability(device)) < _ADA:
        return f"FP8 needs compute capability 8.9, this GPU has {has[0]}.{has[1]}"
    try:
        importlib.import_module("torchao.float8")
    except Exception as error:  # noqa: BLE001  # as above
        return f"torchao cannot be loaded: {error}"
    return Fp8Choice(kind="torchao", recipe="tensor", reason="torchao")


def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
