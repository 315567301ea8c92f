"""Sizes of the small policy."""

from dataclasses import dataclass
from typing import Literal

from training.errors import ConfigError, require_positive
from training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class FilmConfig(Settings):
    """Sizes of the small policy. What the data decide (dims, vocabulary, cameras) is not here.

    Attributes:
        kind: names the model in a configuration.
        width: features of a prefix token (image, text, state).
        expert_width: features of an action token; even, for the sines and cosines of the time.
        layers: depth of the trunk, and of the action expert beside it.
        heads: attention heads, shared by trunk and expert.
        head_dim: features of a head; even, for the rotary position encoding.
        mlp_ratio: hidden features of an MLP over its width.
        text_layers: attention layers over the instruction alone, before trunk and FiLM.
        conv_channels: channels of the image encoder's stages; each halves the picture. Two keep a
            map fine enough to tell where things are in pictures of 64 pixels.
        film: let the instruction modulate the image encoder (FiLM, arXiv:1709.07871).
        time_sampling: density of the flow-matching time: `beta` as in pi0, or `uniform`.
        flow_steps: Euler steps at inference.
    """

    kind: Literal["film"] = "film"
    width: int = 128
    expert_width: int = 128
    layers: int = 2
    heads: int = 4
    head_dim: int = 32
    mlp_ratio: int = 3
    text_layers: int = 1
    conv_channels: tuple[int, ...] = (32, 32)
    film: bool = True
    time_sampling: Literal["beta", "uniform"] = "uniform"
    flow_steps: int = 5

    def __post_init__(self) -> None:
        for name in (
            "width", "expert_width", "layers", "heads", "head_dim", "mlp_ratio", "flow_steps",
        ):  # fmt: skip
            require_positive(f"model.{name}", getattr(self, name))
        for name in ("expert_width", "head_dim"):
            if getattr(self, name) % 2:
                raise ConfigError(f"model.{name} must be even, not {getattr(self, name)}")
        if not self.conv_channels or min(self.conv_channels) <= 0:
            raise ConfigError(
                f"model.conv_channels must be one or more positive numbers: {self.conv_channels}"
            )
        if self.text_layers < 0:
            raise ConfigError(f"model.text_layers cannot be negative: {self.text_layers}")
