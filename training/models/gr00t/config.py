"""Sizes of GR00T N1.5."""

from dataclasses import dataclass
from typing import Literal

from training.errors import ConfigError, require_positive
from training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class GrootConfig(Settings):
    """Sizes of GR00T N1.5; the defaults are the published ones.

    From the `config.json` of nvidia/GR00T-N1.5-3B and that of its Eagle 2.5 backbone
    (`eagle2_hg_model` in github.com/NVIDIA/Isaac-GR00T, release n1.5): SigLIP So400m, one linear
    connector without pixel shuffle, the first 12 layers of Qwen3-1.7B. Vocabulary, embodiments,
    tokens of a picture, of a state and the number of future tokens are the plan's. A patch is as
    large as `image_size` and the image tokens of the plan's layout make it: 14 pixels with 256.

    Attributes:
        kind: names the model in a configuration.
        width: features of a token of the backbone.
        mlp_width: hidden features of the backbone's MLPs.
        layers: depth of the backbone.
        heads: query heads of the backbone.
        kv_heads: heads of keys and values, a divisor of `heads`.
        head_dim: features of a head of the backbone; even.
        image_size: height and width, in pixels, to which pictures are scaled.
        vision_width: features of a patch token, a multiple of `vision_heads`.
        vision_depth: layers of the vision tower.
        vision_heads: attention heads of the vision tower.
        vision_mlp_width: hidden features of the vision tower's MLPs.
        adapter_layers: self-attention layers between backbone and action head; 0 for none.
        adapter_heads: their attention heads, a divisor of `width`.
        dit_layers: layers of the action head; those with even numbers, from 0, attend to the
            observations, the others to the head's own tokens.
        dit_heads: attention heads of the action head.
        dit_head_dim: features of a head of it.
        hidden: features between the two layers of the embodiments' MLPs, and of the action head's
            output.
        state_dim, action_dim: to which vectors are filled with zeros; at least the plan's.
        max_positions: learned positions of actions; at least the plan's horizon.
        time_buckets: values that the flow time is rounded down to.
        action_mask: which actions of its span an action sees: `full`, all, as published; `causal`,
            those before it (then state and future tokens see no action); `auto`, full where every
            chunk of the plan is whole (`tail` `drop`), else causal: the length of a chunk would
            tell how near the end of its episode is (docs/adr/0007).
        normalise: actions and states by `quantiles` (1 % to -1 and 99 % to 1), or by `moments`
            (mean and standard deviation).
        time_sampling: density of the flow-matching time: `beta` as published, or `uniform`.
        flow_steps: Euler steps at inference.
    """

    kind: Literal["gr00t_n15"] = "gr00t_n15"
    width: int = 2048
    mlp_width: int = 6144
    layers: int = 12
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    image_size: int = 224
    vision_width: int = 1152
    vision_depth: int = 27
    vision_heads: int = 16
    vision_mlp_width: int = 4304
    adapter_layers: int = 4
    adapter_heads: int = 32
    dit_layers: int = 16
    dit_heads: int = 32
    dit_head_dim: int = 48
    hidden: int = 1024
    state_dim: int = 64
    action_dim: int = 32
    max_positions: int = 1024
    time_buckets: int = 1000
    action_mask: Literal["auto", "causal", "full"] = "auto"
    normalise: Literal["quantiles", "moments"] = "quantiles"
    time_sampling: Literal["beta", "uniform"] = "beta"
    flow_steps: int = 4

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and name != "adapter_layers":
                require_positive(f"model.{name}", value)
        if self.adapter_layers < 0:
            raise ConfigError(f"model.adapter_layers cannot be negative: {self.adapter_layers}")
        for name in ("head_dim", "dit_width"):
            if getattr(self, name) % 2:
                raise ConfigError(f"model.{name} must be even, not {getattr(self, name)}")
        for whole, part in (
            ("heads", "kv_heads"), ("vision_width", "vision_heads"), ("width", "adapter_heads"),
        ):  # fmt: skip
            if getattr(self, whole) % getattr(self, part):
                raise ConfigError(
                    f"model.{whole}={getattr(self, whole)} must be a multiple of"
                    f" model.{part}={getattr(self, part)}"
                )

    @property
    def dit_width(self) -> int:
        """Features of a token of the action head, `dit_heads` times `dit_head_dim`."""
        return self.dit_heads * self.dit_head_dim
