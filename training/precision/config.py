"""In which number formats a run computes."""

from dataclasses import dataclass
from typing import Literal

from training.errors import ConfigError
from training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig(Settings):
    """Number formats of the products; weights, sums and the optimizer are fp32.

    Attributes:
        dtype: `fp32`, or `bf16` for products in bfloat16; on a GPU, FlashAttention needs it.
        fp8: products of the blocks' linear layers in FP8, everything else as `dtype` says: `te`
            (Transformer Engine), `torchao`, `auto` for what suits the device, `emulate` for FP8's
            rounding on any device and none of its speed, or `off`.
    """

    dtype: Literal["fp32", "bf16"] = "fp32"
    fp8: Literal["off", "auto", "te", "torchao", "emulate"] = "off"

    def __post_init__(self) -> None:
        if self.fp8 in {"te", "torchao"} and self.dtype != "bf16":
            raise ConfigError(f"precision.fp8={self.fp8} needs precision.dtype=bf16")
