"""Sizes of pi0.5."""

from dataclasses import dataclass
from typing import Literal

from training.errors import ConfigError, require_positive
from training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Pi05Config(Settings):
    """Sizes of pi0.5; the defaults are the published ones.

    From github.com/Physical-Intelligence/openpi at 15a9616: `gemma_2b` and `gemma_300m` in
    `src/openpi/models/gemma.py`, So400m in `src/openpi/models/siglip.py`, `Pi0Config` in
    `src/openpi/models/pi0_config.py`. The vocabulary is that of the plan's tokenizer. A patch is as
    large as `image_size` and the image tokens of the plan's layout make it: 14 pixels with 256.

    Attributes:
        kind: names the model in a configuration.
        width: features of a prefix token.
        mlp_width: hidden features of the trunk's MLPs.
        expert_width: features of an action token; even.
        expert_mlp_width: hidden features of the action expert's MLPs.
        layers: depth of the trunk, and of the action expert beside it.
        heads: query heads, of trunk and expert.
        kv_heads: heads of keys and values, a divisor of `heads`.
        head_dim: features of a head; even.
        image_size: height and width, in pixels, to which pictures are fitted.
        vision_width: features of a patch token, a multiple of `vision_heads`.
        vision_depth: layers of the vision tower.
        vision_heads: attention heads of the vision tower.
        vision_mlp_width: hidden features of the vision tower's MLPs.
        action_dim: to which action vectors are filled with zeros; at least the plan's.
        action_mask: which actions of its span an action sees: `full`, all, as published; `causal`,
            those before it; `auto`, full where every chunk of the plan is whole (`tail` `drop`),
            else causal: the length of a chunk, or the zeros that fill it, would tell how near the
            end of its episode is, which no policy knows when it acts (docs/adr/0007).
        normalise: actions and states by `quantiles` (1 % to -1 and 99 % to 1), as published, or by
            `moments` (mean and standard deviation).
        time_sampling: density of the flow-matching time: `beta` as published, or `uniform`.
        flow_steps: Euler steps at inference.
    """

    kind: Literal["pi05"] = "pi05"
    width: int = 2048
    mlp_width: int = 16384
    expert_width: int = 1024
    expert_mlp_width: int = 4096
    layers: int = 18
    heads: int = 8
    kv_heads: int = 1
    head_dim: int = 256
    image_size: int = 224
    vision_width: int = 1152
    vision_depth: int = 27
    vision_heads: int = 16
    vision_mlp_width: int = 4304
    action_dim: int = 32
    action_mask: Literal["auto", "causal", "full"] = "auto"
    normalise: Literal["quantiles", "moments"] = "quantiles"
    time_sampling: Literal["beta", "uniform"] = "beta"
    flow_steps: int = 10

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int):
                require_positive(f"model.{name}", value)
        for name in ("expert_width", "head_dim"):
            if getattr(self, name) % 2:
                raise ConfigError(f"model.{name} must be even, not {getattr(self, name)}")
        for whole, part in (("heads", "kv_heads"), ("vision_width", "vision_heads")):
            if getattr(self, whole) % getattr(self, part):
                raise ConfigError(
                    f"model.{whole}={getattr(self, whole)} must be a multiple of"
                    f" model.{part}={getattr(self, part)}"
                )
