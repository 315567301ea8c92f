"""In which number formats a run computes."""

from dataclasses import dataclass
from typing import Literal

from training.errors import ConfigError
from training.settings import Settings

Fp8 = Literal["off", "auto", "te", "torchao", "emulate"]
Recipe = Literal["tensor", "block", "mx"]
"""What shares a scale, of the values as they are: a tensor (weights and inputs e4m3, gradients
e5m2); 1 x 128 values of inputs and gradients and 128 x 128 weights (all e4m3, scales powers of
two, as in DeepSeek-V3, arXiv:2412.19437); or 32 values (MXFP8 of the OCP, all e4m3)."""


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig(Settings):
    """Number formats of the products; weights, sums and the optimizer are fp32.

    Attributes:
        dtype: `fp32`, or `bf16` for products in bfloat16; on a GPU, FlashAttention needs it.
        fp8: products of the blocks' linear layers in FP8, everything else as `dtype` says: `te`
            (Transformer Engine), `torchao`, `auto` for what suits the device, `emulate` for FP8's
            rounding on any device and none of its speed, or `off`.
        recipe: `auto` for what suits the device, or one of `Recipe`; torchao has `tensor` alone.
    """

    dtype: Literal["fp32", "bf16"] = "fp32"
    fp8: Fp8 = "off"
    recipe: Literal["auto", "tensor", "block", "mx"] = "auto"

    def __post_init__(self) -> None:
        if self.fp8 in {"te", "torchao"} and self.dtype != "bf16":
            raise ConfigError(f"precision.fp8={self.fp8} needs precision.dtype=bf16")
        if self.fp8 == "torchao" and self.recipe not in {"auto", "tensor"}:
            raise ConfigError(
                f"precision.recipe={self.recipe} is not one of torchao's: use tensor, or te"
            )
        if self.fp8 == "off" and self.recipe != "auto":
            raise ConfigError(f"precision.recipe={self.recipe} says nothing with precision.fp8=off")
