"""The kinds of policies, their named sizes, and how one is made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from training.models.film.config import FilmConfig

if TYPE_CHECKING:
    from training.models.policy_model import PolicyModel
    from training.policy_spec import PolicySpec

ModelConfig: TypeAlias = FilmConfig
"""Sizes of any kind; `kind` tells which."""

PRESETS: Final[Mapping[str, ModelConfig]] = {
    "tiny": FilmConfig(),
    "small": FilmConfig(
        width=256,
        expert_width=256,
        layers=4,
        heads=8,
        conv_channels=(32, 64, 64),
    ),
}
"""Named sizes: `tiny` learns a demo on two CPU cores in minutes, `small` wants more patience."""


def build_model(config: ModelConfig, spec: "PolicySpec") -> "PolicyModel":
    """A policy with fresh weights from torch's global generator: seed it first."""
    from training.models.film.model import FilmPolicy  # noqa: PLC0415  # only the kind that is made

    return FilmPolicy(config, spec)
